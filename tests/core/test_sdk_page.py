"""docs/sdks.md as `make sdks` reads it: for each language the files to copy, one block of commands, one example."""

import json
import re

import pytest

from sdks.__main__ import CASES, HERE, LANGUAGES
from sdks.page import PAGE, section


@pytest.mark.parametrize("name", LANGUAGES)
def test_each_language_has_files_commands_and_a_program(name: str) -> None:
    found = section(LANGUAGES[name].title, PAGE.read_text())
    assert {file for file in found.files if (HERE / name / file).is_file()} == set(found.files) != set()
    assert found.commands in PAGE.read_text()
    assert sum("http://gateway:1/openapi" in command for command in found.commands_for("http://gateway:1")) == 1
    assert found.program_for("http://gateway:1", "mine").count("http://gateway:1") == 1
    assert found.program_for("http://gateway:1", "mine").count('"mine"') == 2
    assert found.printed == "order one\norder two\n"


def test_a_section_with_another_block_is_refused() -> None:
    page = PAGE.read_text().replace("## Python\n", "## Python\n\n```\npip install more\n```\n", 1)
    with pytest.raises(ValueError, match="not commands, program, commands, text"):
        section("Python", page)


def test_the_page_counts_the_cases_and_each_has_a_name_of_its_own() -> None:
    names = [case["id"] for case in json.loads(CASES.read_text())]
    assert len(set(names)) == len(names)
    assert re.findall(r"\]\(\.\./sdks/cases\.json\) of (\d+) cases", PAGE.read_text()) == [str(len(names))]
