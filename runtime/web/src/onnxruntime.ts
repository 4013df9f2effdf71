/** ONNX Runtime as a backend. Its JavaScript packages share one interface, so this one file serves them all. */

import type * as ort from "onnxruntime-common";
import { BundleError } from "./errors.js";
import type { Backend, Graph, Session } from "./session.js";
import { ARRAYS, type Tensor } from "./tensors.js";

/** The part of an `onnxruntime-*` package that is used. */
export type Ort = Pick<typeof ort, "InferenceSession" | "Tensor">;

export interface OrtSettings {
  readonly name: string;
  readonly opensPaths: boolean; // maps graphs and weights from disk
  readonly writesInPlace: boolean; // binds outputs to the memory of inputs
  readonly session?: ort.InferenceSession.SessionOptions; // such as executionProviders
}

export function onnxruntimeBackend(ort: Ort, settings: OrtSettings): Backend {
  return {
    name: settings.name,
    writesInPlace: settings.writesInPlace,
    memory: ARRAYS,
    open: async (graph) => wrapped(ort, await load(ort, graph, settings)),
  };
}

async function load(ort: Ort, graph: Graph, settings: OrtSettings): Promise<ort.InferenceSession> {
  const options: ort.InferenceSession.SessionOptions = { logSeverityLevel: 3, ...settings.session };
  try {
    if (settings.opensPaths && graph.path !== undefined) return await ort.InferenceSession.create(graph.path, options);
    const externalData = graph.weights.map(({ file, data }) => ({ path: file, data }));
    return await ort.InferenceSession.create(graph.model, { ...options, externalData });
  } catch (error) {
    const reason = (error instanceof Error ? error.message : String(error)).split("\n")[0];
    const needs = `made for ONNX Runtime ${graph.made_for} and newer`;
    throw new BundleError(`${graph.file}: ${settings.name} cannot load this graph (${needs}): ${reason}`);
  }
}

function wrapped(ort: Ort, session: ort.InferenceSession): Session {
  const bound = (tensor: Tensor) => new ort.Tensor(tensor.type as "float32", tensor.data as Float32Array, tensor.dims);
  return {
    run: async (inputs, outputs) => {
      const feeds = mapped(inputs, bound);
      const fetches = mapped(outputs, (tensor) => tensor && bound(tensor));
      return (await session.run(feeds, fetches)) as unknown as Record<string, Tensor>;
    },
    release: () => session.release(),
  };
}

function mapped<A, B>(values: Readonly<Record<string, A>>, change: (value: A) => B): Record<string, B> {
  return Object.fromEntries(Object.entries(values).map(([key, value]) => [key, change(value)]));
}
