"""Runs a paceline command with its own /etc/hosts: `python -m paceline.parts.lab.emulate.own_hosts_file ADDRESSES run --job FILE`.

ADDRESSES is a JSON object, name -> address. paceline starts this program itself.
"""

import json
import runpy
import sys

from paceline.namespaces import enter_with_hosts

if __name__ == "__main__":
    enter_with_hosts(json.loads(sys.argv.pop(1)))
    runpy.run_module("paceline", run_name="__main__", alter_sys=True)
