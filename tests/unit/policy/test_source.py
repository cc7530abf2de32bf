"""Which policy is in force."""

from __future__ import annotations

from engine import metrics
from engine.api import names
from engine.api.objects import ConfigMap
from engine.policy.model import Policy
from engine.policy.source import PolicySource

GOOD = "mode: observe"
BETTER = "mode: off"
BAD = "mode: enforcing"


def config(text: str | None, name: str = names.POLICY_NAME) -> ConfigMap:
    data = {} if text is None else {names.POLICY_KEY: text}
    return ConfigMap(namespace=names.NAMESPACE, name=name, uid="u", resource_version="1", data=data)


def started(policy: str | None, last_good: str | None = None) -> tuple[PolicySource, list[Policy]]:
    seen: list[Policy] = []
    source = PolicySource(seen.append)
    source.start(
        config(policy) if policy is not None else None,
        config(last_good, names.LAST_GOOD_POLICY_NAME) if last_good is not None else None,
    )
    return source, seen


def test_without_a_policy_the_default_is_in_force() -> None:
    """No ConfigMap: enforce, presets, defaults."""
    source, _ = started(None)
    assert source.loaded
    assert source.policy.mode == "enforce"
    assert source.to_keep() is None


def test_a_good_policy_is_in_force_and_to_be_kept() -> None:
    """It becomes the last good one."""
    source, seen = started(GOOD)
    assert source.policy.mode == "observe"
    assert seen[-1] is source.policy
    assert source.to_keep() == GOOD


def test_a_policy_takes_effect_before_the_metric_tells_it() -> None:
    """Who reads its hash on /metrics relies on it: until it is in force, the old hash stands there."""
    told: list[bool] = []

    def tells(policy: Policy) -> bool:
        return metrics.registry.get_sample_value("topogate_policy_info", {"hash": policy.hash}) == 1.0

    metrics.policy_info.clear()  # of the tests before, in this process
    source = PolicySource(lambda policy: told.append(tells(policy)))
    source.start(config(GOOD), None)
    source.changed(names.POLICY_NAME, config(BETTER))
    assert told == [False, False]
    assert tells(source.policy)


def test_a_bad_policy_never_takes_effect() -> None:
    """The one in force stays, and the errors are shown by path."""
    source, seen = started(GOOD)
    source.changed(names.POLICY_NAME, config(BAD))
    assert source.policy.mode == "observe"
    assert len(seen) == 1
    assert source.refused and source.refused[0].startswith("mode: ")


def test_the_last_good_policy_survives_a_restart_with_a_bad_one() -> None:
    """A bad policy that is there at the start does not bring the defaults back."""
    source, _ = started(BAD, last_good=GOOD)
    assert source.policy.mode == "observe"
    assert source.refused


def test_a_mended_policy_takes_effect() -> None:
    """After a refusal the next good text counts, and nothing is refused any more."""
    source, _ = started(GOOD)
    source.changed(names.POLICY_NAME, config(BAD))
    source.changed(names.POLICY_NAME, config(BETTER))
    assert source.policy.mode == "off"
    assert source.refused == ()


def test_going_back_to_the_good_text_ends_the_refusal() -> None:
    """The same text as the one in force is good."""
    source, _ = started(GOOD)
    source.changed(names.POLICY_NAME, config(BAD))
    source.changed(names.POLICY_NAME, config(GOOD))
    assert source.refused == ()


def test_a_policy_without_its_key_is_refused() -> None:
    """An empty ConfigMap is a mistake, not a wish for the defaults."""
    source, _ = started(GOOD)
    source.changed(names.POLICY_NAME, config(None))
    assert source.policy.mode == "observe"
    assert source.refused


def test_deleting_the_policy_brings_the_defaults_back() -> None:
    """That is an explicit act."""
    source, _ = started(GOOD)
    source.changed(names.POLICY_NAME, None)
    assert source.policy.mode == "enforce"


def test_what_is_kept_already_is_not_written_again() -> None:
    """The leader writes the last good policy once."""
    source, _ = started(GOOD, last_good=GOOD)
    assert source.to_keep() is None


def test_when_neither_can_be_read_the_default_is_in_force() -> None:
    """Two bad texts: never a crash, never a half-read policy."""
    source, _ = started(BAD, last_good=BAD)
    assert source.policy.mode == "enforce"


def test_a_change_that_comes_just_before_the_start_is_not_lost() -> None:
    """The watch told it after the start had read the older text: nothing would tell it again."""
    seen: list[Policy] = []
    source = PolicySource(seen.append)
    older = config(GOOD)
    source.changed(names.POLICY_NAME, config(BETTER))
    source.start(older, None)
    assert source.policy.mode == "off"


def test_a_deleted_policy_does_not_come_back_with_a_bad_one() -> None:
    """What replicas that restart take is what the others have in force: the defaults."""
    source, _ = started(GOOD, last_good=GOOD)
    source.changed(names.POLICY_NAME, None)
    kept = source.to_keep()
    assert kept == ""
    source.changed(names.LAST_GOOD_POLICY_NAME, config(kept, names.LAST_GOOD_POLICY_NAME))
    assert source.to_keep() is None
    source.changed(names.POLICY_NAME, config(BAD))
    restarted, _ = started(BAD, last_good=kept)
    assert restarted.policy == source.policy
    assert restarted.policy.mode == "enforce"


def test_a_policy_that_was_deleted_while_nobody_ran_is_given_up_at_the_start() -> None:
    """The leader empties what it kept of it."""
    source, _ = started(None, last_good=GOOD)
    assert source.policy.mode == "enforce"
    assert source.to_keep() == ""


def test_a_last_good_policy_that_this_version_cannot_read_is_left_as_it_is() -> None:
    """Another version may read it: the defaults stand in, and overwrite nothing."""
    source, _ = started(BAD, last_good="mode: enforced")
    assert source.to_keep() is None


def test_without_a_policy_nothing_is_kept() -> None:
    """Neither at the start, nor when the kept one is deleted by hand."""
    source, _ = started(None)
    source.changed(names.LAST_GOOD_POLICY_NAME, None)
    assert source.to_keep() is None
