"""What the counterparts of the layer norm paper's experiments are made of, and what they claim."""

import math

import numpy as np
import pytest
import torch
from fontTools.ttLib import TTFont
from matplotlib.font_manager import FontProperties
from matplotlib.textpath import TextPath
from torch.nn import functional as F

from normlab.book.experiments.layer_norm import recurrent, recurrent_digits
from normlab.book.experiments.paper_experiments import (
    attentive_reader,
    batch_128_and_4,
    captions,
    cloze,
    generative_digits,
    glyphs,
    latent_models,
    lstm,
    order_embeddings,
    skip_thoughts,
    stories,
    strokes,
)
from normlab.layers import BatchNorm1d


def _random(*shape, seed=0, dtype=torch.float64):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)


def test_outlines_are_closed_and_of_one_size():
    moves = glyphs.load_outlines(24)
    assert moves.shape == (len(glyphs.FONTS) * len(glyphs.CHARACTERS), 24, 2)
    assert moves.square().mean().item() == pytest.approx(1, rel=1e-5)
    assert moves.sum(1).abs().max().item() < 1e-4  # back at the start
    assert moves.unique(dim=0).shape[0] > 0.95 * len(moves)


@pytest.mark.parametrize(
    ("name", "character"),
    [("DejaVuSans", "g"), ("DejaVuSerif-BoldItalic", "9"), ("STIXGeneral", "Q")],
)
def test_outlines_fill_the_box_that_matplotlib_draws(name, character):
    path = glyphs._font_folder() / f"{name}.ttf"
    with TTFont(path) as font:
        points = np.concatenate(glyphs.trace_contours(glyphs._record(font, character)))
        size = font["head"].unitsPerEm
    drawn = TextPath((0, 0), character, size=size, prop=FontProperties(fname=str(path)))
    drawn = np.concatenate(drawn.to_polygons())
    for ends in (np.min, np.max):
        assert np.abs(ends(points, 0) - ends(drawn, 0)).max() < 0.01 * size


def test_a_curve_of_control_points_alone_is_closed_through_their_middles():
    corners = ((0.0, 0.0), (2.0, 0.0), (2.0, 2.0), (0.0, 2.0))
    (points,) = glyphs.trace_contours([("qCurveTo", (*corners, None)), ("closePath", ())])
    assert points[0].tolist() == points[-1].tolist() == [0.0, 1.0]
    assert points[8].tolist() == [1.0, 0.0]
    radii = np.linalg.norm(points - 1, axis=1)
    assert radii.min() == 1.0
    assert radii.max() < 1.1


def test_a_missing_character_and_a_short_trajectory_are_refused():
    path = glyphs._font_folder() / "DejaVuSans.ttf"
    with TTFont(path) as font, pytest.raises(ValueError, match="character: got"):
        glyphs._record(font, "\U0010ffff")
    with pytest.raises(ValueError, match="steps: got 1"):
        glyphs.load_outlines(1)


def test_without_a_norm_the_cell_is_torchs_lstm():
    ours = lstm.make_lstm_cell(3, 5, seed=0).double()
    theirs = torch.nn.LSTMCell(3, 5, dtype=torch.float64)

    def reorder(w):  # ours: f, i, o, g; torch's: i, f, g, o
        f, i, o, g = w.detach().chunk(4)
        return torch.cat([i, f, g, o])

    with torch.no_grad():
        theirs.weight_ih.copy_(reorder(ours.x_sums.weight))
        theirs.weight_hh.copy_(reorder(ours.h_sums.weight))
        theirs.bias_ih.copy_(reorder(ours.x_sums.bias))
        theirs.bias_hh.zero_()
    x, state = _random(2, 3), (_random(2, 5, seed=1), _random(2, 5, seed=2))
    for a, b in zip(ours(x, state), theirs(x, state), strict=True):
        assert torch.allclose(a, b, atol=1e-12)


def test_with_all_norms_the_cell_is_the_supplements():
    cell = lstm.make_lstm_cell(3, 5, "sums", seed=0).double()
    with torch.no_grad():
        for i, p in enumerate(cell.parameters()):
            p.copy_(_random(*p.shape, seed=i))
    x, (h, c) = _random(2, 3), (_random(2, 5, seed=1), _random(2, 5, seed=2))

    def norm(a, layer):
        return F.layer_norm(a, a.shape[-1:], layer.weight, layer.bias)

    sums = norm(h @ cell.h_sums.weight.T, cell.h_norm) + cell.x_sums.bias
    sums = sums + norm(x @ cell.x_sums.weight.T, cell.x_norm)
    f, i, o, g = sums.chunk(4, dim=-1)
    new_c = f.sigmoid() * c + i.sigmoid() * g.tanh()
    new_h = o.sigmoid() * norm(new_c, cell.cell_norm).tanh()
    for a, b in zip(cell(x, (h, c)), (new_h, new_c), strict=True):
        assert torch.allclose(a, b, atol=1e-10)


@pytest.mark.parametrize(
    ("norm", "sees"), [("none", True), ("cell", True), ("sums", False), ("sums with bias", True)]
)
def test_which_cell_sees_how_far_the_pen_went(norm, sees):
    cell = lstm.make_lstm_cell(2, 8, norm, seed=0).double()
    x = 100 * _random(4, 2)  # far above eps
    state = cell.start(x)
    moved = (cell(0.01 * x, state)[0] - cell(x, state)[0]).abs().max().item()
    assert (moved > 1e-2) == sees


def test_one_seed_gives_every_cell_the_same_weights():
    cells = [lstm.make_lstm_cell(2, 4, norm, seed=3) for norm in ("none", "sums with bias")]
    assert torch.equal(cells[0].x_sums.weight, cells[1].x_sums.weight)
    models = [strokes.PenModel(4, 2, norm, seed=3) for norm in ("none", "sums with bias")]
    assert torch.equal(models[0].output.weight, models[1].output.weight)
    draws = [latent_models.Draw(norm, seed=3) for norm in ("none", "cell")]
    assert torch.equal(draws[0].write.weight, draws[1].write.weight)


def test_mixture_loss_is_that_of_torchs_distributions():
    parameters, target = _random(7, 12), _random(7, 2, seed=1)
    logit, mx, my, log_sx, log_sy, rho = parameters.chunk(6, dim=-1)
    sx, sy, rho = log_sx.exp(), log_sy.exp(), 0.95 * rho.tanh()
    covariance = torch.stack([sx**2, rho * sx * sy, rho * sx * sy, sy**2], -1).view(7, 2, 2, 2)
    normals = torch.distributions.MultivariateNormal(torch.stack([mx, my], -1), covariance)
    mixture = torch.distributions.MixtureSameFamily(
        torch.distributions.Categorical(logits=logit), normals
    )
    expected = -mixture.log_prob(target).mean()
    assert strokes.mixture_loss(parameters, target).item() == pytest.approx(expected.item())


def test_a_pen_model_does_not_see_what_it_predicts():
    model = strokes.PenModel(6, 2, "sums with bias", seed=0).double()
    moves = _random(3, 5, 2)
    changed = moves.clone()
    changed[:, 3] += 1
    same = (model(changed) == model(moves)).all(-1).all(0)
    assert same.tolist() == [True, True, True, True, False]


def test_the_bound_has_the_kl_of_torchs_distributions():
    mean, log_var = _random(4, 3), _random(4, 3, seed=1)
    generator = torch.Generator().manual_seed(0)
    _, kl = latent_models._sample(torch.cat([mean, log_var], -1), generator)
    normal, standard = (
        torch.distributions.Normal(mean, (0.5 * log_var).exp()),
        torch.distributions.Normal(torch.zeros_like(mean), torch.ones_like(mean)),
    )
    expected = torch.distributions.kl_divergence(normal, standard).sum(-1)
    assert torch.allclose(kl, expected)


def test_a_model_that_knows_nothing_pays_one_bit_a_pixel():
    model = latent_models.Draw("none", seed=0)
    with torch.no_grad():
        for p in (*model.code.parameters(), *model.write.parameters()):
            p.zero_()
    x = (_random(5, 64) > 0).float()
    bound = latent_models.negative_bound(model, x, torch.Generator().manual_seed(0))
    assert bound.item() == pytest.approx(64 * math.log(2), rel=1e-5)


def test_test_digits_are_seen_in_eval_mode_and_training_digits_in_train_mode(monkeypatch):
    seen = []

    def spy(model, x, generator):
        seen.append((len(x), model.training))
        return latent_models.negative_bound(model, x, generator)

    monkeypatch.setattr(generative_digits, "negative_bound", spy)
    found = generative_digits.generative_digits(
        "autoencoder", "batch_norm", 1e-3, 0, steps=3, every=2
    )
    assert len(found["bounds"]) == 1
    assert seen == [(64, True), (64, True), (500, False), (64, True)]


def test_unknown_names_are_refused():
    with pytest.raises(ValueError, match="model: got 'gan'"):
        generative_digits.make_model("gan", "none", seed=0)
    with pytest.raises(ValueError, match="norm: got 'rms'"):
        lstm.make_lstm_cell(2, 3, "rms", seed=0)
    with pytest.raises(ValueError, match="group: got 'rms'"):
        batch_128_and_4.batch_128_and_4("rms", 128, 0.1, 0)
    with pytest.raises(ValueError, match="gain: got"):
        recurrent_digits.recurrent_digits.sweep(gain=[0.0])


def test_a_larger_rate_gets_the_perceptron_further_in_one_epoch():
    slow, fast = (
        batch_128_and_4.batch_128_and_4("none", 128, lr, seed=0, epochs=1)["train_losses"][0]
        for lr in (1e-3, 1e-2)
    )
    assert fast < 0.7 * slow


def test_the_paper_norms_the_logits_with_batch_norm_only():
    last = {g: batch_128_and_4.make_classifier(g, seed=0)[-1] for g in batch_128_and_4.GROUPS}
    assert [type(layer).__name__ for layer in last.values()] == [*["Linear"] * 3, "BatchNorm1d"]


@pytest.mark.parametrize(("norm", "count"), [("none", 0), ("layer_norm", 4), ("batch_norm", 4)])
def test_gain_is_set_on_every_norm_and_on_nothing_else(norm, count):
    model = recurrent.Gru(8, 6, 10, norm, seed=0, steps=2)
    before = {n: p.clone() for n, p in model.named_parameters()}
    recurrent_digits.set_gain(model, 0.1)
    changed = {n for n, p in model.named_parameters() if not torch.equal(p, before[n])}
    assert len(changed) == count
    assert all((model.get_parameter(n) == 0.1).all() for n in changed)


def test_a_caption_above_its_picture_costs_nothing_and_the_other_way_round_does():
    caption, image = _random(3, 5).abs(), _random(3, 5, seed=1).abs()
    above = torch.minimum(caption, image)  # never more than the picture
    assert order_embeddings.order_violation(above, image).diagonal().tolist() == [0, 0, 0]
    swapped = order_embeddings.order_violation(image, above).diagonal()
    assert swapped.min() > 0
    expected = (caption[1] - image[2]).clamp_min(0).square().sum()
    assert order_embeddings.order_violation(caption, image)[1, 2] == expected


def test_the_ranking_loss_is_the_sum_over_wrong_pairs():
    texts, images, margin = _random(4, 3).abs(), _random(4, 3, seed=1).abs(), 0.05
    expected = 0.0
    for n in range(4):
        for wrong in set(range(4)) - {n}:
            right = (texts[n] - images[n]).clamp_min(0).square().sum()
            other_image = (texts[n] - images[wrong]).clamp_min(0).square().sum()
            other_caption = (texts[wrong] - images[n]).clamp_min(0).square().sum()
            expected += (margin + right - other_image).clamp_min(0)
            expected += (margin + right - other_caption).clamp_min(0)
    found = order_embeddings.ranking_loss(texts, images, margin)
    assert found.item() == pytest.approx(expected.item() / 4)
    swapped = order_embeddings.ranking_loss(images, texts, margin)
    assert abs(swapped.item() - found.item()) > 0.1


def test_a_network_that_tells_nothing_apart_has_the_rank_of_a_guess():
    assert order_embeddings.ranks(torch.zeros(5, 5)).tolist() == [3.0] * 5
    violation = torch.tensor([[0.0, 1.0, 2.0], [0.0, 1.0, 2.0], [0.0, 1.0, 2.0]])
    assert order_embeddings.ranks(violation).tolist() == [1.0, 2.0, 3.0]


def test_captions_say_what_is_in_the_picture():
    trained, tested = captions.load_captioned_digits(0)
    assert trained.captions.shape == (1297, 4, 10)
    words = {number: word for word, number in captions.vocabulary().items()}
    back = [" ".join(words[n] for n in row.tolist() if n) for row in tested.captions[7]]
    assert tuple(back) == tested.texts[7]
    bold = torch.tensor(["bold" in texts[0].split() for texts in tested.texts])
    ink = tested.images.mean(1)
    assert ink[bold].min() > ink[~bold].max()
    line = torch.zeros(2, 8, 8)
    line[0, range(8), range(7, -1, -1)] = 1  # from the lower left to the upper right
    line[1, range(8), range(8)] = 1
    slant = captions.measure(line.flatten(1))[:, 2]
    assert torch.allclose(slant, torch.tensor([1.0, -1.0], dtype=torch.float64))


def test_every_question_has_one_answer_in_its_passage():
    passage, question, answer = cloze.draw_cloze(200, torch.Generator().manual_seed(0))
    sentences = passage.view(200, cloze.SENTENCES, 3)
    gap = question == cloze.GAP
    assert gap.sum(1).eq(1).all()
    fits = ((sentences == question[:, None]) | gap[:, None]).all(-1)
    assert fits.sum(1).eq(1).all()
    assert torch.equal(sentences[fits][gap], answer)
    assert (sentences[..., 0] != sentences[..., 2]).all()


@pytest.mark.parametrize("norm", ["none", "layer_norm", "batch_norm"])
def test_the_reader_has_the_lstm_of_the_other_experiments(norm):
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        ours = attentive_reader.Lstm(3, 5, norm, steps=4)
    cell = lstm.make_lstm_cell(3, 5, "none" if norm == "none" else "sums with bias", seed=1)
    with torch.no_grad():
        for name in ("x_sums", "h_sums"):
            getattr(cell, name).load_state_dict(getattr(ours, name).state_dict())
    x = _random(6, 4, 3, dtype=torch.float32)
    states = ours(x)
    state = cell.start(x)
    for step in range(4):
        state = cell(x[:, step], state)
        same = torch.allclose(states[:, step], state[0], atol=1e-5)
        assert same == (norm != "batch_norm")


def test_the_gain_of_batch_norm_starts_at_a_tenth():
    for group in attentive_reader.GROUPS:
        reader = attentive_reader.make_reader(group, 4, seed=0)
        gains = {
            round(value, 6)
            for name, p in reader.named_parameters()
            if "norm" in name and name.endswith("weight")
            for value in p.tolist()
        }
        assert gains == {"none": set(), "layer_norm": {1.0}}.get(group, {0.1})
    everywhere = attentive_reader.make_reader("batch norm everywhere", 4, seed=0)
    assert torch.equal(everywhere.words.weight, reader.words.weight)
    assert all(isinstance(norm, BatchNorm1d) for norm in everywhere.norms)


def test_a_story_keeps_person_and_place_and_tells_its_mood_in_two_ways():
    drawn = stories.draw_stories(400, torch.Generator().manual_seed(0))
    places = list(stories.THINGS)
    for row in range(400):
        for at in range(3):
            text = [stories.WORDS[word] for word in drawn.sentences[row, at] if word]
            assert text[0] == stories.PEOPLE[drawn.person[row]]
            assert text[2] in stories.THINGS[places[drawn.place[row]]]
            mood = stories.MOODS[drawn.moods[row, at]]
            assert (text[-1] == mood) == ("not" not in text)
    changed = (drawn.moods[:, 1:] != drawn.moods[:, :-1]).double().mean().item()
    assert 0.05 < changed < 0.15


def test_the_neighbor_loss_is_that_of_the_neighbors():
    words = len(stories.WORDS)
    sentences = stories.draw_stories(5, torch.Generator().manual_seed(0)).sentences

    def loss_of(logits):
        return skip_thoughts.neighbor_loss(lambda read: logits, sentences).item()

    assert loss_of(torch.zeros(5, 2, 6, words)) == pytest.approx(6 * math.log(words), rel=1e-5)
    knows = 50.0 * F.one_hot(sentences[:, ::2], words)
    assert loss_of(knows) < 1e-5
    assert loss_of(knows.flip(1)) > 10  # the sentence after in the place of the one before


def test_a_decoder_does_not_see_the_word_that_it_guesses():
    model = skip_thoughts.SkipThoughts(8, "layer_norm", seed=0)
    sentences = stories.draw_stories(4, torch.Generator().manual_seed(0)).sentences
    changed = sentences.clone()
    changed[:, 0, 3] = 1 + changed[:, 0, 3] % 5
    same = (model(changed) == model(sentences)).all(-1).all(0)
    assert same[0].tolist() == [True, True, True, True, False, True]
    assert same[1].all()


def test_a_short_run_writes_the_neighbors_better_than_none():
    found = skip_thoughts.skip_thoughts("layer_norm", lr=0.01, seed=0, steps=25, tested=200)
    assert found["loss"] == found["losses"][-1] < 15 < found["losses"][0]
    assert len(found["related"]) == len(found["losses"]) == 2


def test_a_linear_probe_is_tested_on_the_other_half():
    x = _random(80, 3)
    y = x @ _random(3, 2, seed=1) + 4
    assert torch.allclose(skip_thoughts.fit_linear(x, y), y[40:], atol=0.05)
    y[40:] = 0  # what is not fitted does not reach the prediction
    assert skip_thoughts.fit_linear(x, y).mean() > 3
