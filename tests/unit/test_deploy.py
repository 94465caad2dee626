"""The files of docs/deploy: whole, and of one mind. tests/serve compares the dashboard with a server's metrics."""

import json
import re
import shlex
from pathlib import Path
from typing import Any

import yaml

from mmspec.cli.cache_options import encoder_cache_from

FOLDER = Path(__file__).parents[2] / "docs" / "deploy"


def dashboard() -> dict[str, Any]:
    read: dict[str, Any] = json.loads((FOLDER / "grafana.json").read_text())
    return read


def dashboard_expressions() -> list[str]:
    """Every PromQL expression of the dashboard, those of its variables too."""
    panels = [target["expr"] for panel in dashboard()["panels"] for target in panel["targets"]]
    return panels + [one["query"] for one in dashboard()["templating"]["list"] if one["type"] == "query"]


def read_yaml(name: str) -> dict[str, Any]:
    read: dict[str, Any] = yaml.safe_load((FOLDER / name).read_text())
    return read


def test_the_panels_have_places_of_their_own() -> None:
    panels = dashboard()["panels"]
    places = [(panel["gridPos"]["x"], panel["gridPos"]["y"]) for panel in panels]

    assert len({panel["id"] for panel in panels}) == len(panels) == len(set(places))
    assert all(panel["title"] and panel["targets"] for panel in panels)


def test_the_expressions_are_whole_and_use_known_variables() -> None:
    names = {one["name"] for one in dashboard()["templating"]["list"]}
    for expression in dashboard_expressions():
        for opening, closing in ("()", "[]", "{}"):
            assert expression.count(opening) == expression.count(closing), expression
        used = set(re.findall(r"\$(\w+)", expression)) - {"__rate_interval"}
        assert used <= names, expression


def test_prometheus_looks_where_the_server_is() -> None:
    compose = read_yaml("compose.yaml")
    (job,) = read_yaml("prometheus.yaml")["scrape_configs"]
    ((target,),) = (group["targets"] for group in job["static_configs"])
    service, port = target.split(":")

    assert port in [published.split(":")[1] for published in compose["services"][service]["ports"]]
    mounted = [volume.split(":")[0] for volume in compose["services"]["prometheus"]["volumes"]]
    assert all((FOLDER / path).is_file() for path in mounted if path.startswith("./"))
    named = {volume.split(":")[0] for one in compose["services"].values() for volume in one["volumes"]}
    assert {name for name in named if not name.startswith(("./", "/"))} == set(compose["volumes"])


def test_the_image_is_built_from_what_is_there_and_starts_what_mmspec_serve_takes(tmp_path: Path) -> None:
    server = read_yaml("compose.yaml")["services"]["server"]
    copied = [
        source
        for line in server["build"]["dockerfile_inline"].splitlines()
        if line.startswith("COPY ")
        for source in shlex.split(line)[1:-1]
    ]
    options = dict(flag.split("=", 1) for flag in server["command"] if flag.startswith("--"))

    assert all((FOLDER / server["build"]["context"] / source).exists() for source in copied)
    config = encoder_cache_from(str(tmp_path), options["--encoder-cache-size"])
    assert config is not None and options["--encoder-cache"] in [
        volume.split(":")[1] for volume in server["volumes"]
    ]
