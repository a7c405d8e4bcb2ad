"""Labels: what is asked about, who answers, and what is learned of it."""

from typing import Any

import numpy as np
import pytest
import torch

from shoal.agents.world import World
from shoal.configure.reading import resolve
from shoal.data.tasks import Task
from shoal.errors import SettingsError
from shoal.letters.letter import Room
from shoal.letters.mail import ACCEPTED, CLASS_FORBIDDEN, OUT_OF_RANGE, Mail
from shoal.mail.post import Post
from shoal.sharing.labels import Labels
from shoal.sharing.mode import agent_of, received
from tests.fleets import exchange
from tests.sharing.test_formulas import LINE, ready


def mode_of(post: Post) -> Labels:
    assert isinstance(post.mode, Labels)
    return post.mode


def test_images_without_a_label_are_of_the_tasks_classes_and_others_may_learn_from_them() -> None:
    world, _, post = ready({"mode": "labels", "pool": 5})
    others = 0
    for row in range(3):
        rows = agent_of(post, world.lanes[row]).unlabelled(2, 5 * 4)
        stream = world.streams[row]
        assert len(rows) == len(set(rows.tolist())) == 5 * 4
        assert set(world.bank.labels[rows].tolist()) <= set(stream[2].classes)
        assert not world.bank.test[rows].any()
        own = np.concatenate([getattr(task, name) for task in stream for name in ("train", "validation", "test")])
        assert not np.isin(rows, own).any()
        taught = [task.train for other, one in enumerate(world.streams) if other != row for task in one]
        others += np.isin(rows, np.concatenate(taught)).sum()
    assert others


def test_who_knows_all_classes_and_is_sure_answers() -> None:
    world, _, post = ready({"mode": "labels", "sure": 0.0, "cover": 1.0})
    mode, lane = mode_of(post), world.lanes[0]
    agent = agent_of(post, lane)
    known = [one for task in world.streams[0][:3] for one in task.classes]
    unknown = next(one for one in range(10) if one not in known) if len(set(known)) < 10 else None
    rows = agent.unlabelled(2, 3)

    def told(classes: list[int], **own: Any) -> list[int]:
        payload = {"images": world.images(rows), "classes": torch.tensor(classes, dtype=torch.int32)}
        question = Mail(world.lanes[1], lane, "labels", "question", payload, 3)
        found = mode.model_copy(update=own).answer(agent, received(post, question), 1)
        return [] if found is None else [int(one) for one in found["labels"]]

    classes = list(world.streams[0][0].classes)
    assert len(told(classes)) == 3
    assert set(told(classes)) <= set(classes)
    assert told(classes, sure=1.0) == []  # an untrained net is sure of nothing
    if unknown is not None:
        assert told([*classes[:3], unknown]) == []
        assert len(told([*classes[:3], unknown], cover=0.5)) == 3


def test_what_most_say_is_learned_and_not_asked_about_again() -> None:
    own = {"mode": "labels", "sure": 0.0, "cover": 0.1, "queries": 4, "memory": 8, "when": "before"}
    world, stack, _ = ready(own, network={"graph": "edges", "edges": LINE})  # agent 0 has one neighbour
    posted: list[Mail] = []
    for epoch in range(2):
        stack.epoch = epoch
        exchange(world, stack, observe=lambda mail, verdict: posted.append(mail))
    questions = [one for one in posted if one.kind == "question" and (one.sender.agent, one.receiver.agent) == (0, 1)]
    assert len(questions) == 2
    state, known = stack.of("received"), stack.of("labels")["known"][0, 2]
    fill = int(state["fill"][0, 2])
    assert 0 < fill == int(known.sum())
    first, second = (one.payload["images"].flatten(1).tolist() for one in questions)
    agent = agent_of(Post(world, stack, world.settings.sharing[0]), world.lanes[0])
    rows = agent.unlabelled(2, len(known))[known.nonzero().flatten().numpy()]
    learned = world.images(rows).flatten(1).tolist()
    assert all(one in first or one in second for one in learned)
    assert not any(one in first and one in learned for one in second)


def test_an_answer_must_be_to_the_question() -> None:
    world, _, post = ready({"mode": "labels", "when": "before"})
    mode = mode_of(post)
    (asked, *_) = [mail for mail, _ in post.send(mode.asks_of(post)) if mail.sender == world.lanes[0]]
    classes = asked.payload["classes"]

    def verdict(queries: list[int], labels: list[int]) -> str:
        content = {
            "queries": torch.tensor(queries, dtype=torch.int32),
            "labels": torch.tensor(labels, dtype=torch.int32),
        }
        ends = asked.receiver, asked.sender
        return mode.objects(post, Mail(*ends, "labels", "answer", content, len(queries), "", asked.id))

    stranger = next(one for one in range(10) if one not in classes.tolist())
    assert verdict([0, 1], classes[:2].tolist()) == ACCEPTED
    assert verdict([0, 0], classes[:2].tolist()) == OUT_OF_RANGE
    assert verdict([99], classes[:1].tolist()) == OUT_OF_RANGE
    assert verdict([0], [stranger]) == OUT_OF_RANGE


def test_a_question_is_cut_by_its_images_alone_and_leaves_room_for_the_largest_answer() -> None:
    own = {"mode": "labels", "queries": 6, "when": "before"}
    for floats, images in ((4 + 12 + 3 * 64, 3), (4 + 12 + 4 * 64 - 1, 3), (4 + 12 + 4 * 64, 4)):
        world, _, post = ready(own, network={"budget": floats})
        mode = mode_of(post)
        asked = mode.asks_of(post)
        assert [len(one.payload["images"]) for one in asked] == [images] * 6
        assert all(one.payload["classes"].tolist() == [*task_of(world, one).classes] for one in asked)
        quotes = {one.kind: one.items for one in mode.quote(world, Room(floats))}
        assert quotes == {"question": images, "answer": 6}


def test_a_policy_keeps_a_whole_question_back_and_thins_none() -> None:
    own = {"mode": "labels", "queries": 6, "when": "before"}
    world, _, post = ready(own, policy=[{"forbid_classes": [3]}])
    sent = post.send(mode_of(post).asks_of(post))
    assert len(sent) == 6
    for mail, verdict in sent:
        assert mail.items == 6
        assert (verdict == CLASS_FORBIDDEN) == (3 in task_of(world, mail).classes)
    assert {verdict for _, verdict in sent} == {ACCEPTED, CLASS_FORBIDDEN}


def task_of(world: World, mail: Mail) -> Task:
    return world.streams[world.row[mail.sender]][2]


BAD: list[tuple[dict[str, Any], str]] = [
    ({"sharing": "labels", "tasks": {"classes": 1}}, "mode `labels` shares labels of classes"),
    ({"sharing": "labels", "tasks": {"train": "all"}}, "with tasks.train = 'all' leaves none; use one of drawn"),
    ({"sharing": "labels", "tasks": {"scenario": "dirichlet"}}, "tasks.scenario = 'dirichlet' .* leaves none"),
]


@pytest.mark.parametrize(("raw", "sentence"), BAD)
def test_where_no_image_lacks_a_label_is_a_sentence(raw: dict[str, Any], sentence: str) -> None:
    with pytest.raises(SettingsError, match=sentence):
        resolve(raw)
