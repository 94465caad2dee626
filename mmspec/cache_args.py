"""The vision-feature cache in vLLM's engine arguments."""

from typing import Any

from mmspec.config import EncoderCacheConfig
from mmspec.errors import MmspecError

CONNECTOR = "FeatureCacheConnector"
_MODULE = "mmspec.encoders.cache.connector"


def switch_cache_on(args: Any, config: EncoderCacheConfig) -> None:
    """Names our connector in vLLM's `EngineArgs`.

    Raises:
        MmspecError: another connector is named there.
    """
    given = args.ec_transfer_config
    if given is not None:
        name = given.get("ec_connector") if isinstance(given, dict) else given.ec_connector
        if name != CONNECTOR:
            raise MmspecError(
                f"encoder_cache: ec_transfer_config names {name}, and vLLM takes one connector; leave either out"
            )
        return  # a copy of arguments that were filled before
    from vllm.config import ECTransferConfig

    options = config.model_dump(exclude={"role"})
    args.ec_transfer_config = ECTransferConfig(
        ec_connector=CONNECTOR,
        ec_connector_module_path=_MODULE,
        ec_role=f"ec_{config.role}",
        ec_connector_extra_config=options,
    )


def close_features_door(vllm_config: Any, *, asked: bool) -> None:
    """Takes back what vLLM allows every engine that loads from a connector: requests that bring features, or none.

    vLLM expects such an engine to be sent features, or the names of some. Ours is sent pictures; features from outside
    can end an engine, and what is missing cannot be encoded.

    Args:
        asked: whether the user lets requests bring features (`enable_mm_embeds`).
    """
    transfer = getattr(vllm_config, "ec_transfer_config", None)
    if transfer is None or transfer.ec_connector != CONNECTOR:
        return
    remote_kv, multimodal = vllm_config.kv_transfer_config, vllm_config.model_config.multimodal_config
    if remote_kv is None or not remote_kv.is_kv_consumer:
        multimodal.enable_mm_embeds = asked
        multimodal.allow_missing_mm_embeddings = False
