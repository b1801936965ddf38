import "./job.css";
import { mount } from "../../ui/page";
import { JobPage } from "./app";

mount(<JobPage />);
