/** The package passes the interface on that all packages of ONNX Runtime share. */
declare module "onnxruntime-react-native" {
  export * from "onnxruntime-common";
}
