import "./threads.css";
import { mount } from "../../ui/page";
import { ThreadsPage } from "./app";

mount(<ThreadsPage />);
