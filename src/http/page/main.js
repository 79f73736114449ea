// Puts the page together: what comes in live, and the box that explains a user.
import { follow } from "./live.js";
import { explainUsers } from "./explain.js";

follow();
explainUsers();
