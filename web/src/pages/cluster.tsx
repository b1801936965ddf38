import "./cluster/cluster.css";
import { mount } from "../ui/page";
import { ClusterPage } from "./cluster/app";

mount(<ClusterPage />);
