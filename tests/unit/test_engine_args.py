"""From `additional_config["mmspec"]` to vLLM's own arguments."""

import json
import subprocess
import sys
from types import SimpleNamespace
from typing import Any

import pytest

from mmspec import DraftConfig, MmspecConfig, MmspecError
from mmspec.encoders.cache.connector.options import CacheOptions
from mmspec.engine_args import check_engine, engine_kwargs, fill_engine_args
from mmspec.patches.engine_config import CHECK_CONFIGURATION

LOOKUP = {"method": "ngram", "num_speculative_tokens": 3, "prompt_lookup_min": 2, "prompt_lookup_max": 4}
OPTIONS = {"draft": LOOKUP}

IN_VLLM = """
import json
from vllm.engine.arg_utils import AsyncEngineArgs, EngineArgs
from mmspec.engine_args import fill_engine_args

def filled(kind):
    args = kind(model="any/model", additional_config={"mmspec": OPTIONS})
    fill_engine_args(args)
    return [args.speculative_config, args.per_request_spec_decode_metrics]

print(json.dumps([filled(EngineArgs), filled(AsyncEngineArgs)]))
"""


@pytest.fixture(autouse=True)
def every_plugin(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("VLLM_PLUGINS", raising=False)


def engine_args(options: Any, **changes: Any) -> SimpleNamespace:
    """The fields of vLLM's `EngineArgs` that mmspec reads and writes, with vLLM's defaults."""
    fields: dict[str, Any] = {
        "speculative_config": None,
        "per_request_spec_decode_metrics": "none",
        "scheduler_cls": None,
        "worker_extension_cls": "",
        "enable_mm_embeds": False,
    }
    return SimpleNamespace(additional_config={"mmspec": options}, **(fields | changes))


def test_options_alone_switch_drafting_on() -> None:
    args = engine_args(OPTIONS)

    fill_engine_args(args)

    assert args.speculative_config == LOOKUP
    assert args.per_request_spec_decode_metrics == "summary"
    assert args.additional_config == {"mmspec": OPTIONS}


@pytest.mark.slow
def test_the_arguments_of_vllm_itself_are_filled() -> None:
    script = IN_VLLM.replace("OPTIONS", repr(OPTIONS))

    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=600)

    assert done.returncode == 0, done.stderr[-3000:]
    assert json.loads(done.stdout.splitlines()[-1]) == [[LOOKUP, "summary"]] * 2


def test_drafting_is_on_before_vllm_reads_its_arguments() -> None:
    args = engine_args(OPTIONS)
    seen = []

    def create_engine_config(self: Any, usage_context: Any = None, headless: bool = False) -> Any:
        seen.append(self.speculative_config)
        return SimpleNamespace(model_config=SimpleNamespace(is_multimodal_model=True))

    CHECK_CONFIGURATION.wrap(create_engine_config)(args)

    assert seen == [LOOKUP]


@pytest.mark.parametrize("options", [{}, {"draft": "none"}])
def test_nothing_is_switched_on_unasked(options: dict[str, Any]) -> None:
    args = engine_args(options)

    fill_engine_args(args)

    assert args.speculative_config is None
    assert args.per_request_spec_decode_metrics == "none"


@pytest.mark.parametrize("options", [OPTIONS, {}])
def test_a_speculative_config_of_the_users_stays(options: dict[str, Any]) -> None:
    given = {"method": "ngram", "num_speculative_tokens": 7}
    args = engine_args(options, speculative_config=dict(given), per_request_spec_decode_metrics="detailed")

    fill_engine_args(args)

    assert args.speculative_config == given
    assert args.per_request_spec_decode_metrics == "detailed"


@pytest.mark.parametrize("method", ["ngram", "none"])
def test_two_drafters_are_refused(method: str) -> None:
    args = engine_args({"draft": method}, speculative_config={"method": "suffix"})

    with pytest.raises(MmspecError, match=f"asks for {method}, speculative_config for suffix"):
        fill_engine_args(args)


def test_the_arguments_for_plain_vllm_are_complete() -> None:
    """What `engine_kwargs` gives already holds what the plugin would fill in from the options inside it."""
    arguments = engine_kwargs(MmspecConfig(draft=DraftConfig(method="ngram", num_speculative_tokens=3)))
    args = engine_args(arguments["additional_config"]["mmspec"])

    fill_engine_args(args)

    filled = {name: value for name, value in vars(args).items() if value}
    assert filled.items() <= arguments.items()


@pytest.mark.slow
def test_the_encoder_cache_is_a_connector_of_vllms() -> None:
    from vllm.config import ECTransferConfig

    options = {
        "encoder_cache": {"directory": "/features", "disk_size": "1GB", "namespace": "a", "role": "consumer"}
    }
    args = engine_args(options, ec_transfer_config=None)

    fill_engine_args(args)

    found = args.ec_transfer_config
    assert isinstance(found, ECTransferConfig)
    assert (found.ec_connector, found.ec_role) == ("FeatureCacheConnector", "ec_consumer")
    given = CacheOptions.parse(found.ec_connector_extra_config)
    assert given == CacheOptions(directory="/features", disk_size="1GB", namespace="a")
    fill_engine_args(args)  # a copy of the arguments, as vLLM makes some
    assert args.ec_transfer_config is found


@pytest.mark.slow
def test_two_connectors_are_refused() -> None:
    from vllm.config import ECTransferConfig

    other = ECTransferConfig(ec_connector="ECExampleConnector", ec_role="ec_both")

    with pytest.raises(MmspecError, match="names ECExampleConnector"):
        fill_engine_args(engine_args({"encoder_cache": {}}, ec_transfer_config=other))


@pytest.mark.parametrize("asked", [False, True])
@pytest.mark.parametrize(
    ("connector", "remote_kv", "closed"),
    [
        ("FeatureCacheConnector", False, True),
        ("FeatureCacheConnector", True, False),
        ("Another", False, False),
    ],
)
def test_requests_bring_features_only_where_the_user_said_so(
    connector: str, remote_kv: bool, closed: bool, asked: bool
) -> None:
    """vLLM allows it in every engine that loads from a connector."""
    multimodal = SimpleNamespace(enable_mm_embeds=True, allow_missing_mm_embeddings=True)
    config = SimpleNamespace(
        ec_transfer_config=SimpleNamespace(ec_connector=connector),
        kv_transfer_config=SimpleNamespace(is_kv_consumer=True) if remote_kv else None,
        model_config=SimpleNamespace(is_multimodal_model=True, multimodal_config=multimodal),
    )

    check_engine(config, takes_features=asked)

    assert multimodal.enable_mm_embeds == (asked or not closed)
    assert multimodal.allow_missing_mm_embeddings == (not closed)


def test_statistics_take_a_scheduler_and_can_be_left_out() -> None:
    config = MmspecConfig(draft="ngram")

    with_them, without = engine_kwargs(config), engine_kwargs(config, statistics=False)

    assert with_them == without | {"scheduler_cls": "mmspec.scheduler.build_scheduler"}


@pytest.mark.parametrize("given", [None, "my.scheduler"])
def test_pruning_takes_a_scheduler_unless_the_user_has_one(given: str | None) -> None:
    args = engine_args({"fastv": {}}, scheduler_cls=given)

    fill_engine_args(args)

    assert args.scheduler_cls == (given or "mmspec.scheduler.build_scheduler")


def test_a_plugin_that_vllm_may_not_load_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VLLM_PLUGINS", "another")

    with pytest.raises(MmspecError, match="add 'mmspec' to it"):
        fill_engine_args(engine_args(OPTIONS))


def test_a_model_that_takes_no_pictures_is_refused() -> None:
    model = SimpleNamespace(model="a/llama", architectures=["LlamaForCausalLM"], is_multimodal_model=False)

    with pytest.raises(MmspecError, match="a/llama: LlamaForCausalLM is not multimodal"):
        check_engine(SimpleNamespace(model_config=model))
