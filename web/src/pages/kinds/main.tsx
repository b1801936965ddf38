import "./kinds.css";
import { mount } from "../../ui/page";
import { KindsPage } from "./app";

mount(<KindsPage />);
