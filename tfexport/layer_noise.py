"""How much noise every quantised product adds by itself: the product in float against the quantised one.

Both get the same activations, those of the quantised graphs on given sentences, so a layer does not answer for the
layers before it. Letters: B sentences, S source length, R rows, K inputs and N outputs of a product.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import onnx_ir as ir
import onnxruntime

from tfexport.formats.read_graph import read_graph
from tfexport.passes.products import product_of
from tfexport.passes.quantised_products import QuantisedProduct, quantised_products
from tfexport_runtime.bundle import Bundle
from tfexport_runtime.cache import Array, Memory
from tfexport_runtime.graph_pair import padded
from tfexport_runtime.session import InPlaceModel

FloatArray = npt.NDArray[np.float32]
FloatWeights = Mapping[str, Mapping[str, FloatArray]]
"""By graph and name of the weight, [K, N]."""

STEPS = 20  # of the decoder, at most: further ones look alike


@dataclass(frozen=True)
class LayerNoise:
    """One product with a quantised weight."""

    weight: str  # as --keep-float takes it
    graph: str
    decibels: float  # 10 log10 of the energy of the float product over that of the difference


def float_weights(graphs: Mapping[str, ir.Model]) -> FloatWeights:
    """The matrices that graphs in float multiply by. Views, no copies."""
    found: dict[str, dict[str, FloatArray]] = {}
    for name, graph in graphs.items():
        products = (product for node in graph.graph if (product := product_of(node)) is not None)
        tensors = ((p, p.weight.const_value) for p in products)
        arrays = ((p, tensor.numpy()) for p, tensor in tensors if tensor is not None)
        found[name] = {p.weight.name or "": array.T if p.transposed else array for p, array in arrays}
    return found


def measure_layers(
    bundle: Bundle,
    exported: InPlaceModel,
    weights: FloatWeights,
    sources: Sequence[Sequence[int]],
    targets: Sequence[Sequence[int]],
) -> tuple[LayerNoise, ...]:
    """The noisiest first. targets: what the decoder reads, from the start token on; a row for each source."""
    encoder = _Probe.of(bundle, "encoder", weights["encoder"])
    decoder = _Probe.of(bundle, "decoder", weights["decoder"])
    ids, mask = padded(sources, bundle.manifest.source.pad_id)
    encoder.see({"input_ids": ids, "attention_mask": mask}, mask.ravel() == 1)
    for inputs, alive in _steps(bundle, exported, sources, targets):
        decoder.see(inputs, alive)
    return tuple(sorted([*encoder.rows(), *decoder.rows()], key=lambda row: row.decibels))


def _steps(
    bundle: Bundle, exported: InPlaceModel, sources: Sequence[Sequence[int]], targets: Sequence[Sequence[int]]
) -> Iterator[tuple[dict[str, Array], npt.NDArray[np.bool_]]]:
    """The decoder's inputs at every step of given targets, and which rows [R] have not ended."""
    longest = bundle.manifest.model.max_target_length
    cache, pad_id = exported.start(sources, 1), bundle.manifest.target.pad_id
    for step in range(min(STEPS, longest, max(map(len, targets)))):
        cache = cache.with_room(longest)
        tokens = np.array([target[step] if step < len(target) else pad_id for target in targets])
        inputs = {
            "input_ids": tokens[:, None],
            "past_lengths": cache.lengths.copy(),
            "total_length": np.array([step + 1], np.int32),
            "logit_bias": np.zeros((1, bundle.manifest.model.target_vocab_size), np.float32),
            "num_candidates": np.array([1]),
            **_layers(cache.memory, [cache.layer(i) for i in range(len(cache.memory.cross))]),
        }
        yield inputs, np.array([step < len(target) for target in targets])
        _, cache = exported.step_logits(tokens, cache)


def _layers(memory: Memory, cached: Sequence[Array]) -> dict[str, Array]:
    inputs: dict[str, Array] = {"encoder_attention_mask": memory.mask}
    for side, arrays in (("encoder", memory.cross), ("decoder", cached)):
        for i, array in enumerate(arrays):
            inputs[f"past_key_values.{i // 2}.{side}.{'value' if i % 2 else 'key'}"] = array
    return inputs


@dataclass
class _Probe:
    """A graph whose products can be looked at, and what was seen: energies by weight."""

    graph: str
    session: onnxruntime.InferenceSession
    products: Sequence[QuantisedProduct]
    weights: Mapping[str, FloatArray]
    signal: dict[str, float] = field(default_factory=dict)
    noise: dict[str, float] = field(default_factory=dict)

    @classmethod
    def of(cls, bundle: Bundle, graph: str, weights: Mapping[str, FloatArray]) -> _Probe:
        model = read_graph(bundle, graph)
        products = [p for p in quantised_products(model) if p.weight in weights]
        names = {output.name for output in model.graph.outputs} | {value.name for value in model.graph.inputs}
        for value in dict.fromkeys(value for p in products for value in (p.x, p.y)):
            if value.name not in names:
                value.type, value.shape = value.type or ir.TensorType(ir.DataType.FLOAT), None
                model.graph.outputs.append(value)
        settings = onnxruntime.SessionOptions()
        settings.log_severity_level = 3
        settings.add_session_config_entry("session.model_external_initializers_file_folder_path", str(bundle.folder))
        proto = ir.to_proto(model).SerializeToString()
        session = onnxruntime.InferenceSession(proto, settings, providers=["CPUExecutionProvider"])
        return cls(graph, session, products, weights)

    def see(self, inputs: Mapping[str, Array], alive: npt.NDArray[np.bool_]) -> None:
        """alive: of all rows of the activations, those that belong to a sentence."""
        if not self.products:
            return
        names = list(dict.fromkeys(name for p in self.products for name in (p.x.name, p.y.name)))
        values = dict(zip(names, self.session.run(names, dict(inputs)), strict=True))
        for product in self.products:
            weight = self.weights[product.weight]
            x, y = (values[v.name].reshape(len(alive), -1)[alive] for v in (product.x, product.y))
            exact = x @ weight
            if product.bias is not None:
                y = y - product.bias.numpy()
            self.signal[product.weight] = self.signal.get(product.weight, 0.0) + _energy(exact)
            self.noise[product.weight] = self.noise.get(product.weight, 0.0) + _energy(y - exact)

    def rows(self) -> Iterator[LayerNoise]:
        """Products without any noise are left out."""
        for weight, noise in self.noise.items():
            if noise:
                yield LayerNoise(weight, self.graph, 10 * math.log10(max(self.signal[weight], 1e-30) / noise))


def _energy(values: FloatArray) -> float:
    return float(np.square(values, dtype=np.float64).sum())
