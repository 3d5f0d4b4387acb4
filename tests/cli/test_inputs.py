"""Wrong command lines: each is refused with one fitting code, and what is to be typed next is right when it is typed.

`...` in the command to be typed next stands for what only the user knows, and is not tried.
"""

import os
import re
import shlex

import pytest

from paceline import cli
from paceline.cli import main
from paceline.cli.run.verb import would_run
from paceline.facts import Run
from paceline.recording.runs import create_run, write_run

INPUTS = [
    ("runn train.py", "U01", "paceline run train.py"),
    ("--verson", "U01", "paceline --version"),
    ("--jsom ps", "U01", "paceline --json ps"),
    ("train.py --lr 3", "U01", "paceline run train.py --lr 3"),
    ("run", "U02", "paceline run train.py"),
    ("run nothere.py", "U02", "ls ."),
    ("run trian.py", "U02", "paceline run train.py"),
    ("run data", "U02", "ls data"),
    ("run -m nothere", "U02", "cd /the/directory/of/nothere"),
    ("run --nproc-per-node two train.py", "U03", "paceline run --nproc-per-node 2 train.py"),
    ("run --nproc-per-node 0 train.py", "U03", "paceline run --nproc-per-node 2 train.py"),
    ("run --nproc-per-node -1 train.py", "U03", "paceline run --nproc-per-node 2 train.py"),
    ("run --nproc-per-node gpu train.py", "U11", "paceline run --nproc-per-node 2 train.py"),
    ("run --nproc 2x train.py", "U03", "paceline run --nproc-per-node 2 train.py"),
    ("run --nnodes x train.py", "U03", "paceline run --nnodes 1:4 train.py"),
    ("run --nnodes 3:2 train.py", "U05", "paceline run --nnodes 1:4 train.py"),
    ("run --rank 1 train.py", "U01", "paceline run --node-rank 1 train.py"),
    (
        "run --node-rank 2 --nnodes 2 --master-addr a train.py",
        "U05",
        "paceline run --node-rank 1 --nnodes 2 --master-addr a train.py",
    ),
    ("run --max-run soon train.py", "U03", "paceline run --max-run 12h train.py"),
    ("run --max-run 0 train.py", "U03", "paceline run --max-run 12h train.py"),
    ("run --on-hang explode train.py", "U03", "paceline run --on-hang report train.py"),
    ("run --on-hang resume train.py", "U05", "paceline run --on-hang resume --resume auto train.py"),
    ("run --max-restarts x train.py", "U03", "paceline run --max-restarts 0 train.py"),
    ("run --network x2 --local-hosts 2 train.py", "U03", "paceline run --network 100mbit --local-hosts 2 train.py"),
    ("run --network 1gbit train.py", "U05", "paceline run --network 1gbit --local-hosts 2 train.py"),
    ("run --hp lr train.py", "U07", "paceline run --hp lr=VALUE train.py"),
    ("run --hp =3 train.py", "U07", "paceline run --hp key=VALUE train.py"),
    ("run --channel nonsense train.py", "U06", "paceline run --channel nonsense=DIR train.py"),
    ("run --channel train=/nowhere train.py", "U06", "ls /"),
    ("run --set run_id=../x train.py", "U03", "paceline run --set run_id=r-7f3a91 train.py"),
    ("run --env A=1 train.py", "U05", "A=VALUE in front of the command, in place of --env"),
    ("run --option a=1 train.py", "U05", "paceline run --option a=1 --hosts node1,node2 train.py"),
    ("run --gradients dirct train.py", "U03", "paceline run --gradients direct train.py"),
    ("run --gradients direct+ring train.py", "U03", "paceline run --gradients direct train.py"),
    ("run --gradients ring --set allow_lossy=true train.py", "U05", "paceline run --gradients ring train.py"),
    ("run --set allow_lossy=true train.py", "U05", "paceline run --set allow_lossy=true --gradients auto train.py"),
    ("run --local-hosts 0 train.py", "U03", "paceline run --local-hosts 2 train.py"),
    ("run --master-port 70000 train.py", "U03", "paceline run --master-port 29500 train.py"),
    ("run --monitor-interval -1 train.py", "U03", "paceline run --monitor-interval 0.1s train.py"),
    ("run --rdzv-conf timout=3 train.py", "U03", "paceline run --rdzv-conf timeout=3 train.py"),
    ("run --signals-to-handle SIGTERN train.py", "U03", "paceline run --signals-to-handle SIGTERM train.py"),
    ("run --redirects 9 train.py", "U03", "paceline run --redirects 0:3,1:2 train.py"),
    ("run --local-ranks-filter a train.py", "U03", "paceline run --local-ranks-filter 0,1 train.py"),
    ("run --set base_dir=b --set opt_ml=true train.py", "U03", "paceline run --set base_dir=b train.py"),
    ("run --source-dir nowhere train.py", "U02", "paceline run --source-dir . train.py"),
    ("run --set run_dir_mode=777 train.py", "U03", "paceline run --set run_dir_mode=0750 train.py"),
    ("run --set token_file=nowhere train.py", "U12", "ls -l nowhere"),
    ("run --job nowhere.json", "U27", "ls -l nowhere.json"),
    ("run --job train.py", "U27", "paceline help U27"),
    ("run --rdzv-backend etcd train.py", "U32", "torchrun --rdzv-backend=etcd train.py"),
    ("run --start-method forked train.py", "U03", "paceline run --start-method fork train.py"),
    ("why r-zzzzzz", "U09", "paceline ps --all"),
    ("stop r-zzzzzz", "U09", "paceline ps --all"),
    ("why --log nofile", "U27", "ls -l nofile"),
    ("why --fail-on n99", "U03", "paceline why --fail-on N09"),
    ("logs --grep [", "U03", "paceline logs --grep '\\['"),
    ("logs --tail -3", "U03", "paceline logs --tail 20"),
    ("logs --since yesterday", "U03", "paceline logs --since 5m"),
    ("logs --stdout --stderr", "U03", "paceline logs --stdout"),
    ("logs --attempt x", "U03", "paceline logs --attempt 1"),
    ("top --interval 0", "U03", "paceline top --interval 1s"),
    ("top --interval soon", "U03", "paceline top --interval 1s"),
    ("ps extra", "U01", "paceline ps"),
    ("ps --status Broken", "U03", "paceline ps --status Failed"),
    ("stack --rank a", "U03", "paceline stack --rank 0-3,7"),
    ("help Z99", "U01", "paceline help"),
    ("env --python /nowhere/python", "U03", "paceline env --python /usr/bin/python3"),
    ("plan --instances p4d.24xlarg", "P01", "paceline plan --instances p4d.24xlarge"),
    ("plan --instances ml.p3dn.48xlarge", "P01", "paceline plan --instances p3dn.24xlarge"),
    ("plan --instances p9.huge", "P01", "paceline plan --instances p2.xlarge"),
    ("plan --instances --for smdp", "U03", "paceline plan --instances --for smddp"),
    ("plan --instances --where x2", "U03", "paceline plan --instances --where 'gpus>=8,efa=yes,gpu=a100,price<40'"),
    ("plan", "P08", "paceline plan train.py, or with numbers: --gradient-mib MIB --measured-step-ms MS"),
    ("plan nothere.py", "U02", "ls ."),
    ("plan --instance p4d.24xlarge --strategy zero3", "U03", "paceline plan --instance p4d.24xlarge --strategy ddp"),
    (
        "plan --instance p4d.24xlarge --gradient-mib 100 --measured-step-ms three",
        "U03",
        "paceline plan --instance p4d.24xlarge --gradient-mib 100 --measured-step-ms 1",
    ),
    (
        "plan --instance p4d.24xlarge --gradient-mib 100 --measured-step-ms 100 --host-counts 0",
        "U03",
        "paceline plan --instance p4d.24xlarge --gradient-mib 100 --measured-step-ms 100 --host-counts 1",
    ),
    (
        "plan --instance p4d.24xlarge --gradient-mib 100 --measured-step-ms 100 --epochs 3 --steps 3",
        "U03",
        "paceline plan --instance p4d.24xlarge --gradient-mib 100 --measured-step-ms 100 --steps 3",
    ),
    ("bench --rehearse", "U02", "paceline bench --rehearse train.py"),
    ("bench --rehearse --sizes 0 train.py", "U03", "paceline bench --rehearse --sizes 1 train.py"),
    ("bench --rehearse --sizes x train.py", "U03", "paceline bench --rehearse --sizes 1,2 train.py"),
    ("bench", "U03", "paceline bench all_reduce -b 1M -e 64M"),
    ("bench allreduce", "U03", "paceline bench all_reduce"),
    ("bench all_reduce -b 4M -e 1M", "U03", "paceline bench all_reduce -b 4M -e 4M"),
    ("bench all_reduce -d float16x", "U03", "paceline bench all_reduce -d bfloat16"),
    ("bench all_reduce -b x", "U03", "paceline bench all_reduce -b 1M"),
    ("bench step", "U02", "paceline bench step train.py"),
    ("bench step --warmup 2 train.py", "U01", "paceline bench --help"),
    ("submit train.py", "U03", "paceline submit --engine local train.py"),
    ("submit --engine kubernetes train.py", "E01", "paceline submit --engine local train.py"),
    ("submit --engine ssh train.py", "U05", "paceline submit --engine ssh --hosts node1,node2 train.py"),
    (
        "submit --engine sagemaker train.py",
        "E34",
        "paceline submit --engine sagemaker --option image=ACCOUNT.dkr.ecr.REGION.amazonaws.com/NAME:TAG "
        "--option role=arn:aws:iam::ACCOUNT:role/NAME --option instance_type=ml.g5.12xlarge train.py",
    ),
    ("submit --engine slurm --option nonsense=3 train.py", "U03", "paceline submit --engine slurm train.py"),
    ("submit --engine local --retries -1 train.py", "U03", "paceline submit --engine local --retries 1 train.py"),
    ("submit --engine local --option x train.py", "U03", "paceline submit --engine local --option x=VALUE train.py"),
    ("check nothere.py", "U02", "ls ."),
    ("check --fail-on eror train.py", "U03", "paceline check --fail-on error train.py"),
    ("help --completion", "U03", "paceline help --completion bash"),
    ("help --completion tcsh", "U03", "paceline help --completion zsh"),
    ("stop --force", "U01", "paceline stop --help"),
    ("run --nproc-per-node 2 trian.py --lr 3", "U02", "paceline run --nproc-per-node 2 train.py --lr 3"),
    ("run -m train.py", "U02", "paceline run train.py"),
    ("run --no-python train.py", "U02", "chmod +x train.py"),
    ("run --no-python -m train.py", "U03", "paceline run -m train.py"),
    ("plan trian.py", "U02", "paceline plan train.py"),
    ("bench --rehearse --local-hosts two train.py", "U03", "paceline bench --rehearse --local-hosts 1,2 train.py"),
    (
        "bench --rehearse --local-hosts 1,2 --sizes 1 train.py",
        "U03",
        "paceline bench --rehearse --local-hosts 1,2 train.py",
    ),
    (
        "bench --rehearse --run-options --run-dir=/x train.py",
        "U03",
        "paceline bench --rehearse --run-options TEXT train.py",
    ),
    (
        "run --network zones=2 --local-hosts 2 train.py",
        "U05",
        "paceline run --network zones=2,zone-delay=1ms --local-hosts 2 train.py",
    ),
    (
        "run --network cpus=many --local-hosts 2 train.py",
        "U03",
        "paceline run --network cpus=0.5 --local-hosts 2 train.py",
    ),
    (
        "run --start-method=forked --max-run=2h train.py",
        "U03",
        "paceline run --start-method fork --max-run=2h train.py",
    ),
    (
        "submit --engine slurm --option partion=x train.py",
        "U03",
        "paceline submit --engine slurm --option partition=x train.py",
    ),
    ("run --nproc-per-node 2 --hp", "U03", "paceline run --nproc-per-node 2 --hp KEY=VALUE"),
    ("bench all_reduce -n many", "U03", "paceline bench all_reduce -n 1"),
    ("bench all_reduce --run-dir x", "U03", "paceline bench all_reduce"),
    ("bench step --gradients dirct train.py", "U03", "paceline bench step --gradients direct train.py"),
]
# What only the user knows, in a command that is to be typed next.
UNKNOWN = re.compile(r"[A-Z]{3,}|\\.\\.\\.|node1|/the/|, or ")


@pytest.fixture(autouse=True)
def project(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    for name in [name for name in os.environ if name.startswith(("PET_", "PACELINE_"))]:
        monkeypatch.delenv(name)
    (tmp_path / "data").mkdir()
    (tmp_path / "train.py").write_text("print(1)\n")
    directory = create_run(tmp_path / ".paceline" / "runs", "r-2eb6f4")
    write_run(
        Run(
            id="r-2eb6f4",
            name="train",
            directory=str(directory.path),
            command=("train.py",),
            started_ns=1,
            first_host="algo-1",
        )
    )
    return tmp_path


@pytest.mark.parametrize(("typed", "code", "next_step"), INPUTS, ids=[typed for typed, _, _ in INPUTS])
def test_a_wrong_input_is_refused_with_what_to_type_next(typed, code, next_step, capsys):
    assert main(shlex.split(typed)) == 2
    lines = capsys.readouterr().err.splitlines()
    (error,) = (line for line in lines if line.startswith("error["))
    assert error.startswith(f"error[{code}]: ")
    (found,) = (line.split(maxsplit=1)[1] for line in lines if line.startswith("  next "))
    assert found == next_step


@pytest.mark.parametrize(
    ("typed", "next_step"),
    [
        (typed, next_step)
        for typed, _, next_step in INPUTS
        if next_step.startswith("paceline ") and not UNKNOWN.search(next_step)
    ],
)
def test_what_is_to_be_typed_next_is_taken(typed, next_step, project, capsys):
    main(shlex.split(typed))
    (refused,) = (line for line in capsys.readouterr().err.splitlines() if line.startswith("error["))
    (project / "data" / "train.py").write_text("print(1)\n")
    cli.guarded(lambda: tried(shlex.split(next_step)[1:]), [])
    assert refused not in capsys.readouterr().err


def tried(argv) -> int:
    """The exit code of a command line; of a verb that would start ranks or not end, its words are only read."""
    if argv[0] == "run":
        would_run(argv[1:], os.environ)
    elif argv[0] in ("bench", "submit") and "--help" not in argv:
        cli.verb_module(argv[0]).parse(argv[1:])
    elif argv[0] != "top":
        return main(argv)
    return 0
