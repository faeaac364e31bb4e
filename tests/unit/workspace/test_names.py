"""Names: what becomes of the ones that have hurt, and what holds for all."""

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workspace.errors import ExtensionNotAllowed, InvalidName
from workspace.names import check_extension, clean_name, extension, is_clean, number_name, require_clean

RAW = st.text(st.characters(), max_size=80) | st.text("ab./\\-_ \u202e\u200d%CONcom1¹\u0301漢", max_size=400)


@pytest.mark.parametrize(
    ("raw", "kept"),
    [
        ("日本語.pdf", "日本語.pdf"),
        ("relatório final.pdf", "relatório_final.pdf"),
        ("a..b.pdf", "a..b.pdf"),
        (".hidden.pdf", "hidden.pdf"),
        (r"C:\dir\y.pdf", "y.pdf"),
        ("../../etc/x.pdf", "x.pdf"),
        ("folder/", "folder"),
        ("n" * 300 + ".pdf", "n" * 251 + ".pdf"),
        ("漢" * 85 + ".txt", "漢" * 83 + ".txt"),
        ("n" * 300 + ".tar.gz", "n" * 248 + ".tar.gz"),
        ("n." + "x" * 300, "n." + "x" * 253),
        ("50% off.txt", "50_off.txt"),
        ("a%2Fb.txt", "a_2Fb.txt"),
        ("invoice\u202efdp.exe", "invoicefdp.exe"),
        ("con.txt", "_con.txt"),
        ("COM¹", "_COM¹"),
        ("console.log", "console.log"),
        ("re\u0301sume\u0301.pdf", "r\u00e9sum\u00e9.pdf"),
        ("-rf", "_rf"),
        ("  $(rm -rf ~).txt  ", "_rm_-rf_.txt"),
        ("a\r\nb\x00.txt", "ab.txt"),
        (b"caf\xe9.txt", "caf_.txt"),
        ("x\ud800.txt", "x_.txt"),
        ("name...", "name"),
    ],
)
def test_a_name_becomes(raw: str | bytes, kept: str) -> None:
    assert clean_name(raw) == kept


@pytest.mark.parametrize(
    "raw", ["", ".", "..", "...", "/", "\\", "_", "._.", " ", "\u200d", "???", "-", "a/.."]
)
def test_a_name_of_which_nothing_is_left_is_refused(raw: str) -> None:
    with pytest.raises(InvalidName) as caught:
        clean_name(raw)
    assert caught.value.suggestion is None


@given(RAW | st.binary(max_size=300))
def test_what_is_kept_can_stand_in_any_directory(raw: str | bytes) -> None:
    try:
        name = clean_name(raw)
    except InvalidName:
        return
    assert clean_name(name) == name
    assert 0 < len(name.encode()) <= 255
    assert not name.startswith((".", "-"))
    assert not name.endswith(".")
    assert name == unicodedata.normalize("NFC", name)
    assert all(char in "._-" or unicodedata.category(char)[0] in "LMN" for char in name)


@given(st.text("abc漢é", min_size=1, max_size=400), st.sampled_from(["pdf", "tar.gz", "jpeg", "x" * 16]))
def test_a_cut_keeps_the_extension(stem: str, ending: str) -> None:
    assert clean_name(f"{stem}.{ending}").endswith(f".{ending}")


@given(RAW, st.integers(2, 9999))
def test_a_numbered_name_is_clean_and_another(raw: str, number: int) -> None:
    try:
        name = clean_name(raw)
    except InvalidName:
        return
    numbered = number_name(name, number)
    assert is_clean(numbered)
    assert f"-{number}" in numbered
    assert numbered != name or f"-{number}" in name


def test_a_number_stands_before_the_extension() -> None:
    assert number_name("report.pdf", 2) == "report-2.pdf"
    assert number_name("src.tar.gz", 3) == "src-3.tar.gz"
    assert number_name("README", 2) == "README-2"
    assert number_name("n" * 251 + ".pdf", 2) == "n" * 249 + "-2.pdf"


def test_an_unclean_name_is_refused_with_what_it_would_become() -> None:
    require_clean("a.pdf")
    with pytest.raises(InvalidName) as caught:
        require_clean("a b.pdf")
    assert (caught.value.name, caught.value.suggestion) == ("a b.pdf", "a_b.pdf")
    assert not is_clean("a b.pdf")
    assert not is_clean("..")


@pytest.mark.parametrize(
    ("name", "last"), [("a.PDF", "pdf"), ("a.tar.gz", "gz"), ("README", ""), (".env", ""), ("a..b", "b")]
)
def test_the_extension_is_the_last_one(name: str, last: str) -> None:
    assert extension(name) == last


def test_extensions_are_compared_without_case_and_names_without_one_have_their_own_list() -> None:
    check_extension("a.PDF", ["pdf"], [])
    check_extension("makefile", ["pdf"], ["Makefile"])
    check_extension("anything", ["*"], [])
    with pytest.raises(ExtensionNotAllowed) as caught:
        check_extension("a.exe", ["pdf", "txt"], ["Makefile"])
    assert caught.value.allowed == ("pdf", "txt")
    with pytest.raises(ExtensionNotAllowed) as caught:
        check_extension("pdf", ["pdf"], ["Makefile"])
    assert caught.value.allowed == ("Makefile",)
