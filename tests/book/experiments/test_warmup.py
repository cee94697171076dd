"""The warmup experiments, on small networks where only the bookkeeping matters."""

import math

import pytest
import torch

from normlab.book.experiments.data.sequences import load_text, sequence_batches
from normlab.book.experiments.networks.transformer import make_transformer
from normlab.book.experiments.sequence_training import (
    make_optimizer,
    reversal_network,
    sequence_loss,
    text_network,
    token_variance,
    train_on_sequences,
)
from normlab.book.experiments.warmup import (
    warmup_accounts,
    warmup_adamw,
    warmup_divisors,
    warmup_inside,
    warmup_length,
    warmup_mechanism,
    warmup_need,
    warmup_remedies,
    warmup_rescue,
    warmup_resume,
)


def train(group, *, lr=1e-3, steps=22, **settings):
    return warmup_need.warmup_need(lr, group, 0, layers=1, steps=steps, **settings)


def test_groups_share_weights_and_data_and_differ_in_the_rate():
    plain, warmed = "post_norm", "post_norm, warmup"
    firsts = [train(group, steps=1, warmup=1)["final_loss"] for group in (plain, warmed)]
    assert firsts[0] == firsts[1]  # before any update
    seconds = [train(group, steps=2, warmup=2)["final_loss"] for group in (plain, warmed)]
    assert seconds[0] != seconds[1]
    with pytest.raises(ValueError, match="warmup: got 3; expected at most 2, the steps"):
        train(warmed, steps=2, warmup=3)


def test_a_solved_run_stops_and_a_short_one_does_not():
    solved = train("deep_norm, warmup", lr=1e-2, steps=300)
    assert solved["solved"]
    assert 20 <= solved["steps"] < 300
    assert solved["best_accuracy"] > warmup_need.SOLVED
    unsolved = train("pre_norm", warmup=5)
    assert not unsolved["solved"]
    assert unsolved["steps"] == 22


def test_a_loss_that_is_not_finite_is_counted():
    found = train("pre_norm", lr=1e30, optimizer="sgd", warmup=5)
    assert not found["finite"]
    assert not math.isfinite(found["final_loss"])
    assert found["steps"] < 22
    assert math.isfinite(found["largest_loss"])


def test_the_entropy_of_a_text_is_that_of_its_characters():
    text = load_text()
    counts = torch.bincount(text.tokens).double()
    shares = counts / counts.sum()
    assert text.entropy == pytest.approx(-(shares * shares.log()).sum().item())


def test_text_is_predicted_causally():
    model, batches = text_network("pre_norm", layers=1, seed=0)
    x, y = next(batches)
    assert torch.equal(x[:, 1:], y[:, :-1])
    changed = x.clone()
    changed[:, -1] = (changed[:, -1] + 1) % model.tokens.num_embeddings
    with torch.no_grad():
        assert torch.allclose(model(changed)[:, :-1], model(x)[:, :-1], atol=1e-5)


def test_half_precision_overflows_and_single_does_not():
    settings = {"lr": 1e-2, "steps": 10, "warmup": 10}
    assert train("pre_norm", **settings)["finite"]
    assert not train("pre_norm", precision="float16", **settings)["finite"]


def test_mechanism_measures_before_and_after_the_same_update():
    found = warmup_mechanism.warmup_mechanism("post_norm", 0, layers=2, check_at=(0, 1, 3), lr=1e-3)
    assert len(found["losses"]) == len(found["gradients"]) == 3
    assert found["updates"][0] == [0.0, 0.0]
    expected = [last / first for first, last in found["gradients"]]
    assert warmup_mechanism.gradient_ratios(found["gradients"]) == expected
    assert warmup_mechanism.gradient_ratios([(0.0, 1.0)]) == [math.inf]
    # the first update of Adam moves every entry by the rate: Xavier's rule says how much that is
    first = reversal_network("post_norm", layers=2, seed=0)[0].matrices()[0]
    assert found["updates"][1][0] == pytest.approx(
        1e-3 * first.numel() ** 0.5 / first.norm().item(), rel=0.02
    )


def test_mechanism_warmup_makes_the_first_update_smaller():
    plain, warmed = (
        warmup_mechanism.warmup_mechanism(group, 0, layers=2, check_at=(0, 1))
        for group in ("post_norm", "post_norm, warmup")
    )
    assert plain["losses"][0] == warmed["losses"][0]
    assert warmed["updates"][1][0] == pytest.approx(plain["updates"][1][0] / 100, rel=0.02)


def test_inside_measures_what_mechanism_does_at_any_length_of_warmup():
    checks = (0, 1, 2)
    for length, group in ((0, "post_norm"), (100, "post_norm, warmup")):
        found = warmup_inside.warmup_inside(length, 1e-2, 1, check_at=checks)
        known = warmup_mechanism.warmup_mechanism(group, 1, check_at=checks)
        assert found["losses"] == pytest.approx(known["losses"], rel=1e-3)
        assert found["token_variances"] == pytest.approx(known["token_variances"], rel=1e-3)
        assert found["gradients"] == pytest.approx([g[0] for g in known["gradients"]], rel=1e-3)
    with pytest.raises(ValueError, match="check_at: got"):
        warmup_inside.warmup_inside(0, 1e-2, 1, check_at=(1, 2))


@pytest.mark.parametrize("steps", [(1, 2), (0, 2, 2), (0,)])
def test_mechanism_looks_at_growing_numbers_of_updates(steps):
    with pytest.raises(ValueError, match="check_at: got"):
        warmup_mechanism.warmup_mechanism("post_norm", 0, check_at=steps)


def test_the_stability_limit_is_that_of_averaged_descent_on_a_parabola():
    for beta1 in (0.0, 0.5, 0.9):
        limit = warmup_accounts.adam_stability_limit(beta1)
        for factor, grows in ((0.99, False), (1.01, True)):
            w, m = 1.0, 0.0
            for _ in range(4000):
                m = beta1 * m + (1 - beta1) * w  # curvature 1
                w -= factor * limit * m
            assert (abs(w) > 1) == grows


def test_sharpness_is_the_largest_eigenvalue_of_the_scaled_hessian():
    sizes = {"width": 2, "heads": 1, "expansion": 1, "vocabulary": 2, "length": 2}
    model = make_transformer("pre_norm", layers=1, seed=0, **sizes).double()
    batch = next(sequence_batches(vocabulary=2, length=2, seed=1000))
    parameters = dict(model.named_parameters())
    counts = [p.numel() for p in parameters.values()]
    generator = torch.Generator().manual_seed(0)
    roots = 0.5 + torch.rand(sum(counts), generator=generator, dtype=torch.float64)

    def loss(flat):
        parts = [
            part.view_as(p) for part, p in zip(flat.split(counts), parameters.values(), strict=True)
        ]
        logits = torch.func.functional_call(
            model, dict(zip(parameters, parts, strict=True)), (batch[0],)
        )
        return torch.nn.functional.cross_entropy(logits.flatten(0, 1), batch[1].flatten())

    flat = torch.cat([p.detach().flatten() for p in parameters.values()])
    with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
        hessian = torch.autograd.functional.hessian(loss, flat)
    scaled = hessian / roots.sqrt() / roots.sqrt()[:, None]
    expected = torch.linalg.eigvalsh(scaled)[-1].item()
    got = warmup_accounts.sharpness(model, batch, list(roots.split(counts)), iterations=40)
    assert got == pytest.approx(expected, rel=1e-6)


def test_accounts_are_positive_and_of_the_right_order():
    runs = warmup_accounts.warmup_accounts.sweep(layers=[2], seed=[0], batches=4, iterations=4)
    measures = runs.drop(columns=["layers", "seed"]).set_index("placement")
    assert measures.shape == (3, 6)
    assert (measures > 0).all(axis=None)
    assert measures.notna().all(axis=None)
    post, deep = measures.loc["post_norm"], measures.loc["deep_norm"]
    assert deep.amplification < post.amplification
    assert deep.top_gradient < post.top_gradient


def test_amplification_of_nothing_but_the_output_is_one():
    """A network whose features are one linear map of a fixed input passes noise on unamplified."""

    class Linear(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = torch.nn.Parameter(torch.randn(400, 50, dtype=torch.float64))

        def features(self, x):
            return x @ self.weight.T

    torch.manual_seed(5)
    x = torch.randn(200, 50, dtype=torch.float64)
    assert warmup_accounts.amplification(Linear(), (x, x), 1e-3) == pytest.approx(1.0, rel=0.05)


RATES = {
    "nothing": [1.0] * 8,
    "warmup": [0.25, 0.5, 0.75, 1.0, 1.0, 1.0, 1.0, 1.0],
    "small rate": [0.1] * 8,
    "clipping": [1.0] * 8,
    "second moment first": [0.0] * 4 + [1.0] * 8,
    "RAdam": [1.0] * 8,
    "1 full step first": [1.0, 0.25, 0.5, 0.75, 1.0, 1.0, 1.0, 1.0],
    "3 full steps first": [1.0] * 3 + [0.25, 0.5, 0.75, 1.0, 1.0],
    "10 full steps first": [1.0] * 8,
}


@pytest.mark.parametrize("remedy", RATES)
def test_every_remedy_has_its_rates(remedy, monkeypatch):
    curves = []
    inner = warmup_remedies.train_on_sequences

    def spy(*args, **kwargs):
        curves.append((inner(*args, **kwargs), kwargs))
        return curves[-1][0]

    monkeypatch.setattr(warmup_remedies, "train_on_sequences", spy)
    warmup_remedies.warmup_remedies(remedy, 0, layers=1, steps=8, warmup=4)
    (curve, options), *_ = curves
    assert curve.lrs == pytest.approx([1e-2 * r for r in RATES[remedy]])
    assert (options["max_grad_norm"] == 1.0) == (remedy == "clipping")


def test_idling_settles_the_moments_and_moves_nothing():
    model, batches = reversal_network("post_norm", layers=1, seed=0)
    before = [p.detach().clone() for p in model.parameters()]
    optimizer = make_optimizer(model, lr=1e-2)
    idle = warmup_remedies._schedule("second moment first", optimizer, 4)
    train_on_sequences(model, batches, steps=4, optimizer=optimizer, scheduler=idle)
    assert all(torch.equal(a, b) for a, b in zip(before, model.parameters(), strict=True))
    assert all(optimizer.state[p]["exp_avg_sq"].any() for p in model.matrices())


def test_a_length_of_5_is_the_warmup_of_the_other_sweep():
    found = warmup_length.warmup_length("post_norm", 5, 1e-3, 0, layers=1, steps=22)
    assert found["final_loss"] == train("post_norm, warmup", warmup=5)["final_loss"]
    assert (found["steps"], found["solved"]) == (22, False)
    with pytest.raises(ValueError, match="length: got 23; expected at most 22, the steps"):
        warmup_length.warmup_length("post_norm", 23, 1e-3, 0, steps=22)


def test_adamw_follows_its_cosine():
    cold, warm = (warmup_adamw.warmup_adamw(w, 1e-2, 0, layers=1, steps=6) for w in (0, 2))
    assert cold["final_loss"] != warm["final_loss"]
    model, _ = text_network("pre_norm", layers=1, seed=0)
    optimizer = warmup_adamw.make_adamw(model, lr=0.1)
    assert optimizer.defaults["betas"] == (0.9, 0.95)
    assert optimizer.defaults["weight_decay"] == 0.1


def test_a_resumed_run_goes_on_and_a_lost_state_shows_after_one_update():
    resume, short = warmup_resume.warmup_resume, {"layers": 1, "before": 4, "after": 3, "warmup": 2}
    kept, lost, warmed = (resume("pre_norm", k, 0, **short) for k in resume.grid["kept"])
    assert kept["before"] == lost["before"] == warmed["before"]
    assert kept["after"][0] == lost["after"][0] == warmed["after"][0]  # before any update
    assert len({run["after"][1] for run in (kept, lost, warmed)}) == 3


def test_interventions_change_what_they_say():
    model, batches = reversal_network("post_norm", layers=3, seed=0)
    before, _ = reversal_network("post_norm", layers=3, seed=0)
    warmup_rescue.shrink_branches(model, 0.5)
    for name in ("attention_out", "feed_forward_out", "query"):
        factor = 1.0 if name == "query" else 0.5
        for new, old in zip(model.matrices(name), before.matrices(name), strict=True):
            assert torch.equal(new, factor * old)
    warmup_rescue.equal_gradients(model, 0.01)
    sequence_loss(model, next(batches))[0].backward()
    sizes = [p.grad.square().mean().sqrt().item() for p in model.parameters()]
    assert sizes == pytest.approx([0.01] * len(sizes), rel=1e-4)


def test_divisors_are_those_of_the_norms_and_an_update_changes_them():
    measure = warmup_divisors.warmup_divisors
    start, after = (measure(state, 0, layers=2) for state in ("start", "1 update"))
    model, _ = reversal_network("post_norm", layers=2, seed=0)
    tokens, _ = next(sequence_batches(seed=11_000))
    with torch.no_grad():
        x = model.input_norm(model.tokens(tokens) + model.positions.weight)
        added = model.blocks[0].sublayer(x)
        divisor = (x + added).std(-1, correction=0).log().mean().exp().item()
    assert start["divisors"][0] == pytest.approx(divisor, rel=1e-3)
    assert start["branch_sizes"][0] == pytest.approx(added.square().mean().sqrt().item(), rel=1e-3)
    assert len(start["divisors"]) == len(start["branch_variances"]) == 4
    assert start["divisors"] != after["divisors"]


def test_without_their_common_part_branches_add_differences_only():
    found = warmup_divisors.warmup_divisors("10 updates, common part removed", 0, layers=1)
    assert found["branch_variances"] == pytest.approx([1.0, 1.0])


RESCUES = warmup_rescue.warmup_rescue.grid["rescue"]


@pytest.fixture(scope="module")
def rescued():
    short = {"layers": 2, "full_steps": 2, "warmup": 5, "steps": 21}
    return {rescue: warmup_rescue.warmup_rescue(rescue, 0, **short) for rescue in RESCUES}


@pytest.mark.parametrize("rescue", RESCUES)
def test_every_rescue_runs_and_nothing_changes_nothing(rescued, rescue):
    assert 0 <= rescued[rescue]["accuracy"] <= 1
    untouched = rescued["nothing"]["token_variance"]
    same = rescue in ("nothing", "warmup", "warmup, equal gradients")
    assert (rescued[rescue]["token_variance"] == untouched) == same


def test_the_control_of_the_rescue_starts_from_the_initial_weights():
    model, batches = reversal_network("post_norm", layers=2, seed=0)
    warmup_rescue.shrink_branches(model)
    variance = token_variance(model.features(next(batches)[0]))
    control = {"layers": 2, "full_steps": 0, "warmup": 0, "steps": 21}
    found = warmup_rescue.warmup_rescue("warmup, smaller branches", 0, **control)
    assert found["token_variance"] == pytest.approx(variance, rel=5e-3)


def test_the_first_step_of_adam_has_full_size_until_batches_fill_its_averages():
    assert warmup_remedies.filled_first_step(0, batches=0) == pytest.approx(1, abs=0.05)
    assert 0.4 < warmup_remedies.filled_first_step(0, batches=8) < 0.95


@pytest.mark.parametrize("scale", [1e-3, 0.1, 30.0])
def test_the_first_step_of_adam_ignores_the_size_of_the_gradient(scale):
    """A proposition of the chapter: clipping cannot shrink the first step."""
    gradient = torch.randn(50, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    steps = [
        warmup_accounts.first_adam_step(factor * gradient, lr=0.1, eps=0.0)
        for factor in (1.0, scale)
    ]
    assert torch.allclose(*steps, rtol=1e-12)
    assert torch.allclose(steps[0], -0.1 * gradient.sign(), rtol=1e-12)


def test_no_blind_guess_beats_the_entropy():
    """A proposition of the chapter, on random shares and random guesses."""
    generator = torch.Generator().manual_seed(0)
    shares, guesses = torch.rand(2, 200, 9, generator=generator, dtype=torch.float64).unbind()
    shares, guesses = shares / shares.sum(1, keepdim=True), guesses.log_softmax(1)
    entropy = -(shares * shares.log()).sum(1)
    assert (-(shares * guesses).sum(1) > entropy).all()


def test_radam_has_a_warmup_of_its_own():
    beta2, last = 0.98, 2 / (1 - 0.98) - 1
    shares = warmup_remedies.radam_shares(300, beta2=beta2)
    for t in (6, 7, 20, 100, 300):
        rho = last - 2 * t * beta2**t / (1 - beta2**t)
        share = (rho - 4) * (rho - 2) * last / ((last - 4) * (last - 2) * rho)
        assert shares[t - 1] == pytest.approx(share**0.5, rel=1e-6)
    assert shares[5] < 0.2 < 0.5 < shares[49] < shares[99] < shares[299] < 1
    assert max(shares[:5]) == pytest.approx(1e-3)  # no division by the root yet
