"""The warmup experiments, on small networks where only the bookkeeping matters."""

import dataclasses
import math
from types import SimpleNamespace

import pytest
import torch

from normlab import schedules
from normlab.experiments import sequence_training
from normlab.experiments.data.sequences import load_text
from normlab.experiments.results import Result
from normlab.experiments.settings import check_settings
from normlab.experiments.warmup import (
    loop,
    warmup_accounts,
    warmup_adamw,
    warmup_length,
    warmup_mechanism,
    warmup_need,
    warmup_remedies,
    warmup_rescue,
    warmup_resume,
)


def small_need(**changes):
    return dataclasses.replace(
        warmup_need.Config(layers=1, steps=22, warmup=5, lrs=(1e-3,), seeds=(0,)), **changes
    )


def test_groups_share_weights_and_data_and_differ_in_the_rate():
    config = small_need()
    plain = warmup_need.train_one(config, "post_norm", 1e-3, 0)
    warmed = warmup_need.train_one(config, "post_norm, warmup", 1e-3, 0)
    assert plain.losses[0] == warmed.losses[0]  # before any update
    assert plain.losses[1] != warmed.losses[1]
    assert set(plain.lrs) == {1e-3}
    assert warmed.lrs[:6] == pytest.approx([2e-4, 4e-4, 6e-4, 8e-4, 1e-3, 1e-3])


def test_a_solved_run_stops_and_a_short_one_does_not():
    easy = small_need(vocabulary=2, length=1, steps=200, groups=("pre_norm",), lrs=(1e-2,))
    (outcome,) = warmup_need.run(easy).outcomes
    assert outcome.solved
    assert 20 <= outcome.steps < 200
    assert outcome.best_accuracy > warmup_need.SOLVED
    (unsolved,) = warmup_need.run(small_need(groups=("pre_norm",))).outcomes
    assert not unsolved.solved
    assert unsolved.steps == 22


def test_a_loss_that_is_not_finite_is_counted():
    config = small_need(groups=("pre_norm",), lrs=(1e30,), optimizer="sgd")
    (outcome,) = warmup_need.run(config).outcomes
    assert not outcome.finite
    assert outcome.final_loss is None
    assert outcome.steps < 22
    assert math.isfinite(outcome.largest_loss)


def test_values_have_a_row_for_each_seed():
    config = small_need(seeds=(0, 1, 2), lrs=(1e-3, 1e-2), steps=5)
    result = warmup_need.run(config)
    assert len(result.outcomes) == 2 * 3 * len(config.groups)
    rows = result.table("seed", groups=("group", ["pre_norm"]), along=("lr", config.lrs))
    assert rows == {"pre_norm": [[0, 0], [1, 1], [2, 2]]}


def test_the_blind_loss_is_an_entropy():
    assert small_need(vocabulary=7).blind_loss == pytest.approx(math.log(7))
    text = load_text()
    counts = torch.bincount(text.tokens).double()
    shares = counts / counts.sum()
    expected = -(shares * shares.log()).sum().item()
    assert small_need(task="text").blind_loss == pytest.approx(expected)


def test_text_is_predicted_causally():
    config = small_need(task="text", length=6, batch_size=2)
    model = config.make_model("pre_norm", 0)
    x, y = next(config.make_batches(0))
    assert torch.equal(x[:, 1:], y[:, :-1])
    changed = x.clone()
    changed[:, -1] = (changed[:, -1] + 1) % model.tokens.num_embeddings
    with torch.no_grad():
        assert torch.allclose(model(changed)[:, :-1], model(x)[:, :-1], atol=1e-5)


def test_precision_holds_for_all_parameters():
    model = small_need(precision="float16").make_model("post_norm", 0)
    assert {p.dtype for p in model.parameters()} == {torch.float16}


def test_mechanism_measures_before_and_after_the_same_update():
    config = warmup_mechanism.Config(layers=2, check_at=(0, 1, 3), lr=1e-3)
    outcome = SimpleNamespace(**warmup_mechanism.run_one(config, "post_norm", 0))
    assert len(outcome.losses) == len(outcome.gradients) == 3
    assert outcome.movements[0] == outcome.updates[0] == (0.0, 0.0)
    assert outcome.movements[1] == pytest.approx(outcome.updates[1])  # the first update is all
    assert all(m > u for m, u in zip(outcome.movements[2], outcome.updates[2], strict=True))
    assert outcome.output_changes[0] == 0
    assert outcome.output_changes[1] > 0
    expected = [last / first for first, last in outcome.gradients]
    assert warmup_mechanism.gradient_ratios(outcome) == expected
    vanished = SimpleNamespace(gradients=((0.0, 1.0),))
    assert warmup_mechanism.gradient_ratios(vanished) == [math.inf]
    # the first update of Adam moves every entry by the rate: Xavier's rule says how much that is
    model = sequence_training.Config(layers=2, seed=0).make_model()
    first = model.matrices()[0]
    assert outcome.updates[1][0] == pytest.approx(
        1e-3 * first.numel() ** 0.5 / first.norm().item(), rel=0.02
    )


def test_mechanism_warmup_makes_the_first_update_smaller():
    config = warmup_mechanism.Config(layers=2, check_at=(0, 1, 3), lr=1e-2)
    plain = warmup_mechanism.run_one(config, "post_norm", 0)
    warmed = warmup_mechanism.run_one(config, "post_norm, warmup", 0)
    assert plain["losses"][0] == warmed["losses"][0]
    assert warmed["updates"][1][0] == pytest.approx(plain["updates"][1][0] / 100, rel=0.02)
    assert plain["norm_inputs"][0] > 0


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
    settings = sequence_training.Config(
        placement="pre_norm", layers=1, width=2, heads=1, expansion=1, vocabulary=2, length=2
    )
    model = settings.make_model().double()
    batch = next(settings.make_batches())
    parameters = dict(model.named_parameters())
    sizes = [p.numel() for p in parameters.values()]
    generator = torch.Generator().manual_seed(0)
    roots = 0.5 + torch.rand(sum(sizes), generator=generator, dtype=torch.float64)

    def loss(flat):
        parts = [
            part.view_as(p) for part, p in zip(flat.split(sizes), parameters.values(), strict=True)
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
    got = warmup_accounts.sharpness(model, batch, list(roots.split(sizes)), iterations=40)
    assert got == pytest.approx(expected, rel=1e-6)


def test_accounts_are_positive_and_of_the_right_order():
    config = warmup_accounts.Config(layers=(2,), batches=4, iterations=4, seeds=(0,))
    outcomes = {o.placement: o for o in warmup_accounts.run(config).outcomes}
    for outcome in outcomes.values():
        values = list(vars(outcome).values())[3:]
        assert len(values) == 6
        assert all(math.isfinite(v) and v > 0 for v in values)
    assert outcomes["deep_norm"].amplification < outcomes["post_norm"].amplification
    assert outcomes["deep_norm"].top_gradient < outcomes["post_norm"].top_gradient
    without = dataclasses.replace(config, iterations=0)
    assert warmup_accounts.run(without).outcomes[0].sharpness is None


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
    inner = sequence_training.run

    def spy(*args, **kwargs):
        curves.append((inner(*args, **kwargs), kwargs))
        return curves[-1][0]

    monkeypatch.setattr(sequence_training, "run", spy)
    config = warmup_remedies.Config(layers=1, steps=8, warmup=4, lr=1e-2)
    warmup_remedies.run_one(config, remedy, 0)
    (curve, options), *_ = curves
    assert curve.lrs == pytest.approx([1e-2 * r for r in RATES[remedy]])
    assert (options["max_grad_norm"] == 1.0) == (remedy == "clipping")


def test_idling_settles_the_moments_and_moves_nothing():
    config = warmup_remedies.Config(layers=1, steps=4, warmup=4)
    settings = sequence_training.Config(layers=1, steps=4)
    model = settings.make_model()
    before = [p.detach().clone() for p in model.parameters()]
    factory = warmup_remedies._factory(config, "second moment first")
    sequence_training.run(settings, model=model, scheduler_factory=factory)
    assert all(torch.equal(a, b) for a, b in zip(before, model.parameters(), strict=True))


def test_the_loop_is_that_of_the_experiments():
    settings = sequence_training.Config(placement="pre_norm", layers=1, steps=4, lr=1e-2)
    expected = sequence_training.run(
        settings,
        scheduler_factory=lambda o: schedules.constant(o, warmup_steps=2),
        max_grad_norm=1.0,
    )
    model = settings.make_model()
    optimizer = sequence_training.make_optimizer(model, lr=1e-2)
    schedule = schedules.constant(optimizer, warmup_steps=2)
    got = loop.train(model, settings.make_batches(), optimizer, schedule, steps=4)
    assert got == list(expected.losses)


def test_a_length_of_100_is_the_warmup_of_the_other_sweep():
    config = warmup_length.Config(layers=1, steps=22, lengths=(0, 5))
    curve = warmup_need.train_one(small_need(), "post_norm, warmup", 1e-3, 0)
    outcome = warmup_length.run_one(config, "post_norm", 5, 1e-3, 0)
    assert outcome["final_loss"] == round(curve.final_loss(), 4)
    assert (outcome["steps"], outcome["solved"]) == (22, False)


def test_the_best_rate_solves_most_seeds_and_then_soonest():
    rows = [(0.1, 0, 9), (0.1, 1, None), (0.2, 0, 30), (0.2, 1, 40), (0.3, 0, 50), (0.3, 1, 60)]
    outcomes = tuple(
        SimpleNamespace(
            placement="post_norm", length=5, lr=lr, seed=seed, steps=n, solved=n is not None
        )
        for lr, seed, n in rows
    )
    best = warmup_length.at_best_rate(Result(outcomes), "post_norm", 5)
    assert best == (0.2, [30, 40])


def test_adamw_follows_its_cosine():
    config = warmup_adamw.Config(layers=1, steps=6, lengths=(0, 2), lrs=(1e-2,), seeds=(0,))
    cold, warm = warmup_adamw.run(config).outcomes
    assert cold.final_loss != warm.final_loss
    assert cold.largest_loss >= cold.final_loss - 1
    optimizer = warmup_adamw.make_adamw(config.task.make_model("pre_norm", 0), lr=0.1)
    assert optimizer.defaults["betas"] == (0.9, 0.95)
    assert optimizer.defaults["weight_decay"] == 0.1


def test_a_resumed_run_goes_on_and_a_lost_state_shows_after_one_update():
    config = warmup_resume.Config(layers=1, before=4, after=3, warmup=2, seeds=(0,))
    kept, lost, warmed = (warmup_resume.run_one(config, "pre_norm", k, 0) for k in config.kept)
    assert kept["before"] == lost["before"] == warmed["before"]
    assert kept["after"][0] == lost["after"][0] == warmed["after"][0]  # before any update
    assert len({run["after"][1] for run in (kept, lost, warmed)}) == 3
    whole = dataclasses.replace(config, before=7, after=1)
    # the schedule of the longer run has a longer warmup, so only the first losses agree
    assert len(warmup_resume.run_one(whole, "pre_norm", "everything", 0)["after"]) == 1


def test_interventions_change_what_they_say():
    settings = sequence_training.Config(layers=3)
    model, before = settings.make_model(), settings.make_model()
    fresh = sequence_training.Config(layers=3, seed=7).make_model()
    warmup_rescue.renew_layers(model, fresh, range(2))
    for new, old, other in zip(model.matrices(), before.matrices(), fresh.matrices(), strict=True):
        lower = new is not model.matrices()[-1]
        assert torch.equal(new, other if lower else old)
    model = settings.make_model()
    warmup_rescue.shrink_branches(model, 0.5)
    for name in ("attention_out", "feed_forward_out", "query"):
        factor = 1.0 if name == "query" else 0.5
        for new, old in zip(model.matrices(name), before.matrices(name), strict=True):
            assert torch.equal(new, factor * old)
    warmup_rescue.equal_gradients(model, 0.01)
    sequence_training.sequence_loss(model, next(settings.make_batches()))[0].backward()
    sizes = [p.grad.square().mean().sqrt().item() for p in model.parameters()]
    assert sizes == pytest.approx([0.01] * len(sizes), rel=1e-4)


@pytest.mark.parametrize("rescue", warmup_rescue.Config().rescues)
def test_every_rescue_runs_and_nothing_changes_nothing(rescue):
    config = warmup_rescue.Config(layers=2, full_steps=2, warmup=5, steps=21)
    outcome = warmup_rescue.run_one(config, rescue, 0)
    assert 0 <= outcome["accuracy"] <= 1
    untouched = warmup_rescue.run_one(config, "nothing", 0)["token_variance"]
    same = rescue in ("nothing", "warmup", "warmup, equal gradients")
    assert (outcome["token_variance"] == untouched) == same


def test_the_control_of_the_rescue_starts_from_the_initial_weights():
    control = warmup_rescue.Config(layers=2, full_steps=0, warmup=0, steps=21)
    settings = sequence_training.Config(layers=2)
    model, (tokens, _) = settings.make_model(), next(settings.make_batches())
    warmup_rescue.shrink_branches(model)
    variance = sequence_training.token_variance(model.features(tokens))
    outcome = warmup_rescue.run_one(control, "warmup, smaller branches", 0)
    assert outcome["token_variance"] == pytest.approx(variance, rel=5e-3)


def test_the_first_step_of_adam_has_full_size_until_batches_fill_its_averages():
    assert warmup_remedies.filled_first_step(0, batches=0) == pytest.approx(1, abs=0.05)
    assert 0.4 < warmup_remedies.filled_first_step(0, batches=8) < 0.95


BAD = [
    (warmup_need.Config, {"task": "riddles"}, "^task: got"),
    (warmup_need.Config, {"groups": ("post",)}, "^groups: got"),
    (warmup_need.Config, {"groups": ()}, "^groups: got"),
    (warmup_need.Config, {"optimizer": "lion"}, "^optimizer: got"),
    (warmup_need.Config, {"precision": "int8"}, "^precision: got"),
    (warmup_need.Config, {"steps": 0}, "^steps: got 0"),
    (warmup_need.Config, {"warmup": 301}, "^warmup: got 301; expected at most 300, the steps"),
    (warmup_need.Config, {"warmup": -1}, "^warmup: got -1"),
    (warmup_need.Config, {"lrs": (-0.1,)}, "^lrs: got -0.1; expected a positive number"),
    (warmup_length.Config, {"lengths": (0, 700)}, "^lengths: got 700; expected at most 600, the"),
    (warmup_length.Config, {"placements": ("post",)}, "^placements: got"),
    (warmup_adamw.Config, {"lrs": (0.0,)}, "^lrs: got 0.0"),
    (warmup_resume.Config, {"kept": ("hope",)}, "^kept: got"),
    (warmup_rescue.Config, {"full_steps": -1}, "^full_steps: got -1"),
    (warmup_mechanism.Config, {"groups": ("post",)}, "^groups: got"),
    (warmup_mechanism.Config, {"check_at": (1, 2)}, "^check_at: got"),
    (warmup_mechanism.Config, {"check_at": (0, 2, 2)}, "^check_at: got"),
    (warmup_mechanism.Config, {"warmup": 0}, "^warmup: got 0"),
    (warmup_mechanism.Config, {"lr": 0.0}, "^lr: got 0.0"),
    (warmup_accounts.Config, {"placements": ()}, "^placements: got"),
    (warmup_accounts.Config, {"lr": -1.0}, "^lr: got -1.0"),
    (warmup_accounts.Config, {"noise": 0.0}, "^noise: got 0.0"),
    (warmup_accounts.Config, {"batches": 1}, "^batches: got 1"),
    (warmup_accounts.Config, {"iterations": -1}, "^iterations: got -1"),
    (warmup_remedies.Config, {"remedies": ("hope",)}, "^remedies: got"),
    (warmup_remedies.Config, {"lr": -1e-2}, "^lr: got -0.01"),
    (warmup_remedies.Config, {"warmup": 400}, "^warmup: got 400; expected at most 300, the steps"),
    (warmup_remedies.Config, {"max_grad_norm": 0.0}, "^max_grad_norm: got 0.0"),
]


@pytest.mark.parametrize(("config", "fields", "message"), BAD)
def test_bad_settings_name_the_field(config, fields, message):
    with pytest.raises(ValueError, match=message):
        check_settings(config(**fields))


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
