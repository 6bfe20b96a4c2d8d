"""`make house`: rooms, the arrows between them, and their limits."""

import pytest

from scripts import house

FILES = {
    "__init__.py": "",
    "errors.py": "",
    "core/__init__.py": "",
    "core/plan.py": "from cpreplicate.errors import Refused",
    "core/sizes.py": "",
    "storage/__init__.py": "",
    "storage/base.py": "import cpreplicate.errors",
    "storage/backends/__init__.py": "",
    "storage/backends/local.py": "from cpreplicate.storage.base import Storage",
    "storage/backends/native.py": (
        "from cpreplicate.storage import base\nfrom cpreplicate.core import plan"
    ),
    "storage/builtin.py": (
        "from cpreplicate.storage.backends import local, native\n"
        "def later():\n    from cpreplicate.storage.base import Storage"
    ),
}


@pytest.fixture
def root(tmp_path):
    for name, text in FILES.items():
        path = tmp_path / "cpreplicate" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return tmp_path


@pytest.fixture
def project(root):
    return house.House(root)


def test_a_room_is_a_module_or_a_folder_and_an_arrow_joins_two_of_them_once(project):
    found = project.folder("storage")
    assert found.rooms == {"base", "backends", "builtin"}
    assert found.arrows == {("backends", "base"), ("builtin", "backends"), ("builtin", "base")}


def test_imports_of_other_folders_are_arrows_of_the_package_only(project):
    assert project.folder("").arrows == {
        ("core", "errors"),
        ("storage", "core"),
        ("storage", "errors"),
    }


def test_an_opened_folder_is_counted_with_its_rooms_in_place_of_it(project):
    found = project.folder("storage", frozenset({"backends"}))
    assert found.rooms == {"base", "builtin", "backends/local", "backends/native"}
    assert ("builtin", "backends/native") in found.arrows


def test_what_exceeds_a_limit_is_named(project):
    limits = {"storage": {"rooms": 3, "arrows": 2}, "core": {"rooms": 1, "arrows": 0}}
    found = "\n".join(house.problems(project, limits, frozenset()))
    assert "storage has 3 arrows, 2 are allowed" in found
    assert "core has 2 rooms, 1 are allowed" in found
    assert "storage has 3 rooms" not in found


def test_limits_of_a_folder_that_is_gone_are_named(project):
    [problem] = house.problems(project, {"elsewhere": {"rooms": 1, "arrows": 1}}, frozenset())
    assert problem == "[tool.house] names elsewhere, which is no folder"


def test_a_folder_of_more_than_eight_rooms_needs_limits_and_a_contract(root):
    for number in range(7):
        (root / "cpreplicate" / "core" / f"m{number}.py").write_text("")
    large = house.House(root)
    assert list(house.problems(large, {}, frozenset())) == [
        "core has 9 rooms, and no limits in [tool.house]",
        "core has 9 rooms, and no contract of import-linter",
    ]
    limits = {"core": {"rooms": 9, "arrows": 0}}
    assert list(house.problems(large, limits, frozenset({"core"}))) == []


def test_the_containers_of_contracts_are_folders():
    contract = {"containers": ["cpreplicate", "cpreplicate.core.metadata"]}
    pyproject = {"tool": {"importlinter": {"contracts": [contract, {"name": "no circle"}]}}}
    assert house.with_contracts(pyproject) == {"", "core/metadata"}
