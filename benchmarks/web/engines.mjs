// One engine in a worker of its own: ours, or transformers.js. The page asks it to load, and then to translate.
let translate;

const ENGINES = { ours: loadOurs, transformers: loadTransformers };

addEventListener("message", async ({ data: { kind, ...call } }) => {
  try {
    if (kind === "load") {
      translate = await ENGINES[call.engine](call);
      postMessage({ done: null });
    } else {
      const started = performance.now();
      const tokens = await translate(call.ids, call.steps);
      postMessage({ done: { milliseconds: performance.now() - started, tokens } });
    }
  } catch (error) {
    postMessage({ failed: String(error?.stack ?? error) });
  }
});

/** The bundle takes ids as text, so ours tokenises and detokenises as well. */
async function loadOurs({ bundle, threads }) {
  const { Translator, webBackend } = await import("/runtime/index.js");
  const translator = await Translator.load(bundle, await webBackend({ ort: "/ort/ort-wasm-simd-threaded.mjs", threads }));
  return async (ids, steps) => {
    const length = { min_length: steps, max_length: steps, max_length_ratio: null };
    const [{ hypotheses }] = await translator.translate([ids.join(" ")], { beam_size: 1, n_best: 1, ...length });
    return hypotheses[0].ids;
  };
}

async function loadTransformers({ model, dtype, threads, wasm, eos }) {
  const { AutoModelForSeq2SeqLM, Tensor, env } = await import("/transformers/transformers.min.js");
  env.allowRemoteModels = false;
  env.allowLocalModels = true;
  env.localModelPath = "/models/";
  env.backends.onnx.wasm.numThreads = threads;
  env.backends.onnx.wasm.wasmPaths = { mjs: `/transformers-ort/${wasm}.mjs`, wasm: `/transformers-ort/${wasm}.wasm` };
  const loaded = await AutoModelForSeq2SeqLM.from_pretrained(model, { dtype, device: "wasm" });
  const tensor = (values) => new Tensor("int64", BigInt64Array.from(values, BigInt), [1, values.length]);
  return async (ids, steps) => {
    const source = [...ids, eos];
    const output = await loaded.generate({
      inputs: tensor(source),
      attention_mask: tensor(source.map(() => 1)),
      max_new_tokens: steps,
      num_beams: 1,
      do_sample: false,
    });
    return Array.from(output.data, Number).slice(1); // without the start token
  };
}
