"""Set-up compiles the kernels of every kind of source, so that no first use waits for them."""

from __future__ import annotations

import importlib.util
from types import ModuleType

import pytest

from tests.unit.adapters.helpers import PROJECT


@pytest.fixture
def tool() -> ModuleType:
    spec = importlib.util.spec_from_file_location("compile_kernels", PROJECT / "tools" / "compile_kernels.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.slow
def test_replaying_the_files_of_set_up_compiles_what_reads_them(tool: ModuleType) -> None:
    tool.run([tool.run_little_demo, tool.read_other_sources])
    names = ("wukongs.adapters.sources.", "wukongs.store.encode_kernels.encode_lines")
    assert [name for name in tool.uncompiled() if name.startswith(names)] == []
