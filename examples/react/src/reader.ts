// in a project of your own: a copy of that file
export * from "../../web/src/reader";
