"""Locations: one folder a member, one path for the service and one for the agent."""

from __future__ import annotations

import hashlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workspace.errors import InvalidName
from workspace.location import Location, member_segment, parse_project_id, project_root, told_path


@pytest.mark.parametrize("member", ["ana", "a", "0", "ana.b-c_d", "a" * 63, "m-" + "g" * 32])
def test_a_plain_member_is_its_own_folder(member: str) -> None:
    assert member_segment(member) == member


@pytest.mark.parametrize(
    "member", ["Ana", "ana\n", "ana::x", "../x", ".x", "", "a" * 64, "漢", "m-" + "0" * 32, "\ud800"]
)
def test_any_other_member_is_hashed(member: str) -> None:
    digest = hashlib.sha256(member.encode("utf-8", "surrogatepass")).hexdigest()
    assert member_segment(member) == f"m-{digest[:32]}"


@given(st.text(st.characters(), max_size=80), st.text(st.characters(), max_size=80))
def test_two_members_never_share_a_folder(one: str, other: str) -> None:
    assert (member_segment(one) == member_segment(other)) == (one == other)


def test_a_member_named_as_the_hash_of_another_gets_another_folder() -> None:
    assert member_segment(member_segment("Ana")) != member_segment("Ana")


@pytest.mark.parametrize("raw", ["", "main", "Site", "a/b", "..%2F", "-a", "a" * 65, "site\n", "a.b"])
def test_what_is_no_project_id_is_refused(raw: str) -> None:
    with pytest.raises(InvalidName):
        parse_project_id(raw)
    with pytest.raises(InvalidName):
        Location("ana", raw)


def test_a_project_lies_beside_the_main_workspace() -> None:
    assert str(project_root(Location("ana"))) == "ana/workspace"
    assert str(project_root(Location("ana", "site-2"))) == "ana/workspace-site-2"


@pytest.mark.parametrize(
    ("isolates_members", "isolates_projects", "project", "told"),
    [
        (False, False, None, "/data/ana/workspace/public/a.pdf"),
        (False, False, "site", "/data/ana/workspace-site/public/a.pdf"),
        (True, False, None, "public/a.pdf"),
        (True, False, "site", "/data/workspace-site/public/a.pdf"),
        (False, True, None, "public/a.pdf"),
        (True, True, "site", "public/a.pdf"),
    ],
)
def test_the_agent_is_told_the_path_that_it_can_open(
    isolates_members: bool, isolates_projects: bool, project: str | None, told: str
) -> None:
    assert told == told_path(
        "public/a.pdf",
        location=Location("ana", project),
        container_path="/data/",
        isolates_members=isolates_members,
        isolates_projects=isolates_projects,
    )
