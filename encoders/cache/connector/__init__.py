"""The cache as vLLM uses it: an encoder-cache connector, with a side in the scheduler and one in each worker.

vLLM is told of it by `ec_transfer_config`: `ec_connector="FeatureCacheConnector"`, and this module as
`ec_connector_module_path`.
"""

from mmspec.encoders.cache.connector.connector import FeatureCacheConnector

__all__ = ["FeatureCacheConnector"]
