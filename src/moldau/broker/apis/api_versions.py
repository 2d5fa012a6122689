"""ApiVersions 0–4: derived from the table of APIs and the image's features.

3: flexible (but never its response header), client software, features as tags. 4: also lists features that may be off,
which clients of version 3 took for an error (KAFKA-17011).
"""

from moldau.base.errors import WireError
from moldau.broker.call import Call
from moldau.broker.context import ControlContext
from moldau.metadata.features import FEATURES, finalized
from moldau.wire.messages.api_versions import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
    FinalizedFeatureKey,
    SupportedFeatureKey,
)
from moldau.wire.messages.registry import BY_KEY, ApiMessages

KEY = 18
OWN_CLIENT = "moldau"  # the software name of our own clients
CLIENT_NAME = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-")


def api_versions(ctx: ControlContext, request: ApiVersionsRequest | None, call: Call) -> ApiVersionsResponse:
    """`request` is None if its version is unknown: the response then lists this API alone (KIP-511)."""
    if request is None:
        return ApiVersionsResponse(error_code=WireError.UNSUPPORTED_VERSION, api_keys=(_row(BY_KEY[KEY]),))
    if call.version >= 3:
        if not (_named(request.client_software_name) and _named(request.client_software_version)):
            return ApiVersionsResponse(error_code=WireError.INVALID_REQUEST, api_keys=())
        call.session.software_name = request.client_software_name
        call.session.software_version = request.client_software_version
    return ApiVersionsResponse(
        error_code=WireError.NONE,
        api_keys=tuple(_row(api) for api in ctx.served if not api.own or call.session.software_name == OWN_CLIENT),
        supported_features=_supported(call.version),
        finalized_features_epoch=ctx.image.features_epoch,
        finalized_features=tuple(
            FinalizedFeatureKey(name=name, max_version_level=level, min_version_level=level)
            for name, level in finalized(ctx.image).items()
        ),
    )


def _supported(version: int) -> tuple[SupportedFeatureKey, ...]:
    return tuple(
        SupportedFeatureKey(name=feature.name, min_version=feature.lowest, max_version=feature.highest)
        for feature in FEATURES.values()
        if feature.lowest > 0 or version >= 4
    )


def _row(api: ApiMessages) -> ApiVersion:
    return ApiVersion(api_key=api.key, min_version=api.advertised, max_version=api.highest)


def _named(text: str) -> bool:
    """Letters, digits, dots and dashes, with a letter or digit at both ends (KIP-511)."""
    return bool(text) and set(text) <= CLIENT_NAME and text[0].isalnum() and text[-1].isalnum()
