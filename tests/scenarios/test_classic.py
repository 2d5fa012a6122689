"""Scripts of the classic group protocol: every transition of the machine, and every error it answers with."""

import re
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest

from moldau.groups.classic import group as classic_group
from moldau.groups.classic.group import TRANSITIONS, State
from moldau.groups.environment import GroupConfig, GroupEnvironment, Topics
from moldau.groups.shard import GroupShard
from moldau.wire.messages.delete_groups import DeleteGroupsRequest
from moldau.wire.messages.heartbeat import HeartbeatRequest
from moldau.wire.messages.join_group import JoinGroupProtocol, JoinGroupRequest
from moldau.wire.messages.leave_group import LeaveGroupMember, LeaveGroupRequest
from moldau.wire.messages.sync_group import SyncGroupAssignment, SyncGroupRequest
from scenarios.script import Command, Verb, run_script, scripts
from scenarios.stage import Stage, show


class Play:
    """The verbs of these scripts. The first word is the client; a member is `client-number`."""

    def __init__(self) -> None:
        self.config: dict[str, int] = {}
        ids: Iterator[int] = count(1)
        self.stage = Stage(
            GroupShard,
            lambda now: GroupEnvironment(now, GroupConfig(**self.config), lambda: str(next(ids)), Topics()),
            lambda shard: {group_id: group.state for group_id, group in shard.groups.items()},
        )

    def verbs(self) -> dict[str, Verb]:
        own = (self.join, self.sync, self.heartbeat, self.leave, self.delete, self.show, self.list, self.set)
        return self.stage.verbs() | {verb.__name__: verb for verb in own}

    def set(self, command: Command) -> list[str]:
        """`set max_size=2`: the broker's settings."""
        self.config |= {name: int(value) for name, value in command.options.items()}
        return []

    def join(self, command: Command) -> list[str]:
        """`join a member=a-1 instance=i protocols=range,sticky metadata=x version=9`."""
        options = command.options
        names = options.get("protocols", "range").split(",")
        metadata = options.get("metadata", "m").encode()
        request = JoinGroupRequest(
            group_id=options.get("group", "g"),
            session_timeout_ms=int(options.get("session", 10_000)),
            rebalance_timeout_ms=int(options.get("rebalance", 60_000)),
            member_id=options.get("member", ""),
            group_instance_id=options.get("instance"),
            protocol_type=options.get("type", "consumer"),
            protocols=tuple(JoinGroupProtocol(name=name, metadata=metadata) for name in names if name),
        )
        return self.stage.ask(request, command.words[0], int(options.get("version", 9)))

    def sync(self, command: Command) -> list[str]:
        """`sync a member=a-1 generation=1 assign=a-1:x,b-2:y`; assignments come from the leader."""
        options = command.options
        pairs = [each.split(":") for each in options.get("assign", "").split(",") if each]
        request = SyncGroupRequest(
            group_id=options.get("group", "g"),
            generation_id=int(options.get("generation", 1)),
            member_id=options["member"],
            group_instance_id=options.get("instance"),
            protocol_type=options.get("type", "consumer") or None,
            protocol_name=options.get("protocol", "range") or None,
            assignments=tuple(
                SyncGroupAssignment(member_id=member, assignment=assigned.encode()) for member, assigned in pairs
            ),
        )
        return self.stage.ask(request, command.words[0], int(options.get("version", 5)))

    def heartbeat(self, command: Command) -> list[str]:
        """`heartbeat a member=a-1 generation=1`."""
        options = command.options
        request = HeartbeatRequest(
            group_id=options.get("group", "g"),
            generation_id=int(options.get("generation", 1)),
            member_id=options["member"],
            group_instance_id=options.get("instance"),
        )
        return self.stage.ask(request, command.words[0], 4)

    def leave(self, command: Command) -> list[str]:
        """`leave a a-1 /instance b-2/instance`: members by member id, by instance id, or by both."""
        who, *names = command.words
        parts = [name.partition("/") for name in names]
        members = tuple(LeaveGroupMember(member_id=member, group_instance_id=inst or None) for member, _, inst in parts)
        return self.stage.ask(LeaveGroupRequest(group_id=command.options.get("group", "g"), members=members), who, 5)

    def delete(self, command: Command) -> list[str]:
        """`delete a g h`."""
        return self.stage.ask(DeleteGroupsRequest(groups_names=command.words[1:]), command.words[0], 2)

    def show(self, command: Command) -> list[str]:
        """`show g`: as DescribeGroups has it."""
        assert isinstance(self.stage.machine, GroupShard)
        return [show(self.stage.machine.describe_classic(command.words[0]))]

    def list(self, command: Command) -> list[str]:
        """`list states=empty types=classic`."""
        assert isinstance(self.stage.machine, GroupShard)
        states, types = (tuple(filter(None, command.options.get(of, "").split(","))) for of in ("states", "types"))
        return [show(group) for group in self.stage.machine.list_groups(states, types)]


def told_by_scripts(pattern: str) -> set[tuple[str, ...]]:
    found = (re.findall(pattern, path.read_text(), re.MULTILINE) for path in scripts("classic"))
    return {each if isinstance(each, tuple) else (each,) for many in found for each in many}


def test_scripts_walk_every_transition() -> None:
    moves = told_by_scripts(r"^    \w+: (\w+) -> (\w+)$")
    named = {(before.replace("nothing", State.DEAD), after.replace("nothing", State.DEAD)) for before, after in moves}
    assert {(before, after) for before, befores in TRANSITIONS.items() for after in befores} <= named


def test_scripts_show_every_error() -> None:
    sources = [path.read_text() for path in Path(classic_group.__file__).parent.glob("*.py")]
    answered = {name for source in sources for name in re.findall(r"WireError\.([A-Z_]+)", source)}
    assert answered - {"NONE"} <= {name for (name,) in told_by_scripts(r"error_code=([A-Z_]+)")}


@pytest.mark.parametrize("path", scripts("classic"), ids=lambda path: path.stem)
def test_script(path: Path) -> None:
    run_script(path, Play().verbs())
