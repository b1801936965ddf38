import "./cluster.css";
import { mount } from "../../ui/page";
import { ClusterPage } from "./app";

mount(<ClusterPage />);
