// node search_graph.mjs ONNXRUNTIME_WEB FOLDER REQUEST: one call of the graph in WebAssembly; prints its outputs as JSON.
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { pathToFileURL } from "node:url";

const [engine, folder, request] = process.argv.slice(2);
const ort = await import(pathToFileURL(engine).href);
ort.env.wasm.numThreads = 1;
const { weights, inputs, outputs } = JSON.parse(request);
const session = await ort.InferenceSession.create(readFileSync(join(folder, "search.onnx")), {
  externalData: weights.map((path) => ({ path, data: readFileSync(join(folder, path)) })),
  logSeverityLevel: 3,
});
const arrays = { int64: (values) => BigInt64Array.from(values, BigInt), int32: (values) => Int32Array.from(values) };
const feeds = Object.fromEntries(
  Object.entries(inputs).map(([name, { type, dims, data }]) => [name, new ort.Tensor(type, arrays[type](data), dims)]),
);
const found = await session.run(feeds);
const plain = outputs.map((name) => ({ dims: found[name].dims, data: Array.from(found[name].data, Number) }));
process.stdout.write(JSON.stringify(plain));
