"""Mistakes in the mathematics that the nearest tests must not let pass: losses, rates, scales, signs, salts, orders."""

from typing import Final, NamedTuple


class Mutant(NamedTuple):
    """``old``, which stands exactly once in ``file``, made ``new``: one of ``tests`` must then fail."""

    file: str
    old: str
    new: str
    tests: str


PILOT = "tests/train/methods/test_pilot.py"
LOSSES = "tests/train/methods/test_pilot_losses.py"
ATA = "tests/train/methods/test_ata.py"
MOAP = "tests/train/methods/test_pfedmoap.py"
GATE = "tests/adapters_store/personal/test_gate.py"
HEADS = "tests/adapters_store/personal/test_heads.py"
CLIENT = "tests/train/federation/test_client.py"
OPTIMISE = "tests/train/federation/test_optimise.py"
ATAF = "tests/train/merging/test_ataf.py"
ALPHA = "tests/train/merging/test_ataf_alpha.py"
AGGREGATORS = "tests/train/aggregation/test_aggregators.py"
SAP = "tests/train/merging/test_sap.py"
PRUNING = "tests/train/merging/test_pruning.py"

MUTANTS: Final = (
    # Pilot
    Mutant("train/methods/pilot.py", 'if "client" in extras:', 'if "client" in extras and False:', PILOT),
    Mutant("train/methods/pilot.py", "outputs.loss + options.difference_weight *", "outputs.loss + 0.1 *", PILOT),
    Mutant("train/methods/pilot.py", "options.balance_weight * balance", "0.1 * balance", PILOT),
    Mutant("train/methods/pilot.py", "options.z_weight * z_loss", "0.01 * z_loss", PILOT),
    Mutant("train/methods/pilot.py", "+ options.balance_weight", "- options.balance_weight", PILOT),
    Mutant(
        "train/methods/pilot.py", "options.top_m, options.lora.alpha / options.lora.rank", "options.top_m, 1.0", PILOT
    ),
    Mutant("train/methods/pilot.py", "scheduled * self.options.connector_rate", "scheduled", CLIENT),
    Mutant("train/methods/pilot_losses.py", "probabilities.mean(1)", "probabilities.mean((0, 1))", LOSSES),
    Mutant("train/methods/pilot_losses.py", "return experts**2 *", "return experts *", LOSSES),
    Mutant("train/methods/pilot_losses.py", "logits.logsumexp(-1).square()", "logits.logsumexp(-1).abs()", LOSSES),
    Mutant("train/methods/pilot_losses.py", "rows.detach().norm", "rows.norm", LOSSES),
    Mutant("train/methods/pilot_losses.py", "/ tokens**2", "/ tokens", LOSSES),
    Mutant("train/methods/ata.py", '(scale if ".lora_B." in name else 1.0)', "1.0", ATA),
    Mutant("train/methods/ata.py", "(row[i], i))[:top_m]", "(-row[i], i))[:top_m]", ATA),
    Mutant("train/methods/ata.py", "1 / max(row[i], CLOSEST)", "max(row[i], CLOSEST)", ATA),
    Mutant("train/methods/pilot_server.py", 'state[f"known/{name}"] else [True]', "True else [True]", PILOT),
    # pFedMoAP and its heads
    Mutant("train/methods/pfedmoap.py", "sorted(pool, key=lambda name: distances[name])", "sorted(pool)", MOAP),
    Mutant(
        "train/methods/pfedmoap.py",
        "client.class_names, state, self.options.mixing",
        "client.class_names, state, 0.5",
        MOAP,
    ),
    Mutant("train/methods/pfedmoap.py", "return self.options.gate_lr if", "return scheduled if", CLIENT),
    Mutant("train/methods/pfedmoap.py", '"select", context.round)', '"select", 0)', MOAP),
    Mutant("adapters_store/personal/gate.py", "SCALE = 10.0", "SCALE = 1.0", GATE),
    Mutant("adapters_store/personal/gate.py", "// width][..., :width]", "// width].flip(-1)[..., :width]", GATE),
    Mutant("adapters_store/personal/gate.py", " + (x @ self.output.bias)[:, None]", "", GATE),
    Mutant("adapters_store/personal/heads.py", "self.mixing * (images @ self.text.T)", "(images @ self.text.T)", HEADS),
    Mutant("adapters_store/personal/heads.py", "-self.sharpness * (1 - images", "-self.sharpness * (1 + images", HEADS),
    # local training
    Mutant("train/federation/client.py", "self.method.rate(name, scheduled)", "scheduled", CLIENT),
    Mutant("train/federation/optimise.py", "math.pi * (epoch - 1) / epochs", "math.pi * epoch / epochs", OPTIMISE),
    Mutant(
        "train/models/lora.py",
        "parameter.shape[1] ** -0.5",
        "parameter.shape[0] ** -0.5",
        "tests/train/models/test_mllm.py",
    ),
    Mutant(
        "train/aggregation/averaging.py",
        "return [n / total for n in examples]",
        "return [1 / len(examples)] * len(examples)",
        "tests/train/aggregation/test_averaging.py",
    ),
    Mutant(
        "train/aggregation/averaging.py",
        "total = torch.zeros(first.shape, dtype=torch.float64)",
        "total = weights[0] * first.to(torch.float64)",
        "tests/train/aggregation/test_averaging.py",
    ),
    Mutant("train/aggregation/trimmed_mean.py", "stack[cut:-cut]", "stack", AGGREGATORS),
    Mutant("train/aggregation/median.py", "(stack[low] + stack[high]) / 2", "stack[low]", AGGREGATORS),
    Mutant(
        "train/aggregation/multi_krum.py", "key=lambda k: (scores[k], k)", "key=lambda k: (-scores[k], k)", AGGREGATORS
    ),
    Mutant(
        "train/aggregation/clipped_mean.py", "most / norm if norm > most", "most / norm if norm < most", AGGREGATORS
    ),
    Mutant(
        "train/privacy/dp_sgd.py",
        "dtype=torch.float64) < rate",
        "dtype=torch.float64) <= 2 * rate",
        "tests/train/privacy/test_privacy.py",
    ),
    Mutant(
        "adapters_store/pictures/pixels.py",
        '"bilinear": Image.Resampling.BILINEAR',
        '"bilinear": Image.Resampling.BICUBIC',
        "tests/adapters_store/pictures/test_pixels.py",
    ),
    Mutant(
        "adapters_store/pictures/pixels.py",
        '"bicubic": Image.Resampling.BICUBIC',
        '"bicubic": Image.Resampling.BILINEAR',
        "tests/adapters_store/pictures/test_pixels.py",
    ),
    # merges
    Mutant("train/merging/ataf.py", "tau_b.T @ tau_a", "tau_a.T @ tau_b", ATAF),
    Mutant("train/merging/ataf.py", "inner / norms.where(~null, 1.0) ** 2", "inner / norms.where(~null, 1.0)", ATAF),
    Mutant("train/merging/ataf.py", "(1 - alpha) * b_a, alpha * left", "alpha * b_a, (1 - alpha) * left", ATAF),
    Mutant("train/merging/ataf.py", "u * (sigma > NULL * sigma[0])", "u", ATAF),
    Mutant(
        "train/merging/ataf_alpha.py",
        "divergence(logits_a, logits) + divergence(logits_b, logits)",
        "2 * divergence(logits_a, logits)",
        ALPHA,
    ),
    Mutant("train/merging/ataf_alpha.py", "return min(scores", "return max(scores", ALPHA),
    Mutant("train/models/answers.py", "replace(anchor, answer=own)", "anchor", "tests/train/merge/test_asked_model.py"),
    Mutant("train/merging/selection.py", "masked = keys < cut", "masked = keys > cut", SAP),
    Mutant("train/merging/sap.py", "RATIO = 0.95", "RATIO = 0.5", SAP),
    Mutant("train/merging/sap.py", "gradient.to(torch.float64)).abs()", "gradient.to(torch.float64))", SAP),
    Mutant(
        "train/merging/pruning.py",
        "torch.where(new > 0, old / new, 0.0)",
        "torch.where(new > 0, new / old, 0.0)",
        PRUNING,
    ),
    Mutant(
        "train/merging/pruning.py", 'generator(seed, "saliency", *name)', 'generator(0, "saliency", *name)', PRUNING
    ),
    Mutant("train/merging/means.py", "[factor / len(adapters)]", "[factor]", "tests/train/merging/test_means.py"),
    Mutant("train/merging/dare.py", "/ (1 - drop)", "", "tests/train/merging/test_dare.py"),
    Mutant(
        "train/merging/dare.py",
        'generator(seed, "dare", name, client)',
        'generator(seed, "dare", name)',
        "tests/train/merging/test_dare.py",
    ),
    Mutant("train/merging/robust.py", "s / total", "s", "tests/train/merging/test_robust.py"),
    Mutant("train/merging/ties.py", "1 - density, scope", "density, scope", "tests/train/merging/test_ties.py"),
    Mutant("train/merging/anchored.py", "found = gain *", "found = 1.0 *", "tests/train/merging/test_anchored.py"),
    Mutant("train/lowrank.py", "root[:, None] * vh[:rank]", "vh[:rank]", "tests/train/test_lowrank.py"),
    # what is told, and kept apart
    Mutant("train/publish/versions.py", "trust=method.trust,\n", "\n", "tests/train/publish/test_publish.py"),
    Mutant(
        "serve/chat/conversation.py", '"cache_salt": owner,', '"cache_salt": "",', "tests/serve/chat/test_cache_salt.py"
    ),
    Mutant(
        "serve/versions/loaded_versions.py",
        "key=lambda r: r.used_at, reverse=True",
        "key=lambda r: r.used_at",
        "tests/serve/versions/test_adapters.py",
    ),
    Mutant(
        "serve/versions/loaded_versions.py",
        "(self._keeps(r.subject.name), r.used_at)",
        "(self._keeps(r.subject.name), -r.used_at)",
        "tests/serve/versions/test_adapters.py",
    ),
)
