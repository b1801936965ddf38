import "./threads/threads.css";
import { mount } from "../ui/page";
import { ThreadsPage } from "./threads/app";

mount(<ThreadsPage />);
