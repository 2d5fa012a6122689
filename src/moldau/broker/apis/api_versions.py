"""ApiVersions 0–4: derived from the table of APIs and the image's features.

3: flexible (but never its response header), client software, features as tags. 4: features may start at version 0.
"""

from moldau.base.errors import WireError
from moldau.broker.call import Call
from moldau.broker.context import Context
from moldau.wire.messages.api_versions import ApiVersion, ApiVersionsRequest, ApiVersionsResponse
from moldau.wire.messages.registry import APIS, BY_KEY, ApiMessages

KEY = 18
CLIENT_NAME = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-")


def api_versions(ctx: Context, request: ApiVersionsRequest | None, call: Call) -> ApiVersionsResponse:
    """`request` is None where its version is from the future: the answer then names this API alone (KIP-511)."""
    if request is None:
        return ApiVersionsResponse(error_code=WireError.UNSUPPORTED_VERSION, api_keys=(_row(BY_KEY[KEY]),))
    if call.version >= 3 and not (_named(request.client_software_name) and _named(request.client_software_version)):
        return ApiVersionsResponse(error_code=WireError.INVALID_REQUEST, api_keys=())
    return ApiVersionsResponse(
        error_code=WireError.NONE,
        api_keys=tuple(_row(api) for api in APIS),
        finalized_features_epoch=ctx.image.features_epoch,
    )


def _row(api: ApiMessages) -> ApiVersion:
    return ApiVersion(api_key=api.key, min_version=api.advertised, max_version=api.highest)


def _named(text: str) -> bool:
    """Letters, digits, dots and dashes, with a letter or digit at both ends (KIP-511)."""
    return bool(text) and set(text) <= CLIENT_NAME and text[0].isalnum() and text[-1].isalnum()
