"""Where a torch's flight recorder has its fields, from its own headers: what src/paceline/probes/flight_recorder_memory.py knows.

python tests/torches/recorder_layout.py TORCH    TORCH: the folder of the package; prints a Layout. Needs g++.
"""

import re
import subprocess
import sys
import tempfile
from pathlib import Path

_RECORDER = {
    "entries": "entries_",
    "most": "max_entries_",
    "next": "next_",
    "groups": "all_pg_status_",
    "members": "pg_name_to_ranks_",
}
_ENTRY = {
    "pg_id": "pg_id_",
    "name": "pg_name_",
    "collective": "collective_seq_id_",
    "to_a_peer": "p2p_seq_id_",
    "operation": "op_id_",
    "text": "profiling_name_",
    "traceback": "traceback_",
    "created": "time_created_",
    "is_to_a_peer": "isP2P_",
    "started": "time_discovered_started_",
    "completed": "time_discovered_completed_",
    "input_dims": "input_dims_",
    "input_types": "input_dtypes_",
    "output_dims": "output_dims_",
    "output_types": "output_dtypes_",
    "sizes": "sizes_",
    "retired": "retired_",
}


def layout_in_headers(torch: Path) -> dict[str, int]:
    """Name of a field of `Layout` -> its offset in bytes, `size`: of an entry. Compiled, and never run.

    Raises:  CalledProcessError: the compiler refuses the headers
    """
    asked = {name: f"offsetof(Recorder, {member})" for name, member in _RECORDER.items()}
    asked |= {"size": "sizeof(Recorder::Entry)"}
    asked |= {name: f"offsetof(Recorder::Entry, {member})" for name, member in _ENTRY.items()}
    program = (
        "#include <cstddef>\n#include <torch/csrc/distributed/c10d/FlightRecorder.hpp>\n"
        "using Recorder = c10d::FlightRecorder<c10::Event>;\n"
        f'extern "C" {{ extern const unsigned long layout[] = {{{", ".join(asked.values())}}}; }}\n'
    )
    headers = [f"-I{torch / 'include'}", f"-I{torch / 'include/torch/csrc/api/include'}"]
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "layout.cpp"
        source.write_text(program)
        words = ["g++", "-std=c++20", "-w", "-S", "-o", "-", *headers, str(source)]
        assembly = subprocess.run(words, capture_output=True, text=True, check=True).stdout
    numbers = re.search(r"^layout:\n((?:\s+\.quad\s+\d+\n)+)", assembly, re.MULTILINE)
    assert numbers is not None, "the compiler has written the numbers in another form"
    return dict(zip(asked, map(int, re.findall(r"\d+", numbers[1])), strict=True))


if __name__ == "__main__":
    found = layout_in_headers(Path(sys.argv[1]))
    print(f"Layout({', '.join(f'{name}={at}' for name, at in found.items())})")
