"""UpdateFeatures 0–2: set the levels of features, all or none.

1: safe and unsafe downgrades, validate only. 2: the response no longer lists the features.
"""

from moldau.base.errors import Refusal, WireError
from moldau.broker.call import Call
from moldau.broker.context import ControlContext
from moldau.broker.controller import ControllerResponse, unless_deposed
from moldau.metadata.changes import Change
from moldau.metadata.features import update
from moldau.wire.messages.update_features import FeatureUpdateResult, UpdateFeaturesRequest, UpdateFeaturesResponse


async def update_features(
    ctx: ControlContext, request: UpdateFeaturesRequest, call: Call
) -> ControllerResponse[UpdateFeaturesResponse]:
    outcome: Change | Refusal
    if request.validate_only:
        outcome = update(ctx.image, request.feature_updates)
    else:
        outcome = await ctx.controller.submit(lambda image: update(image, request.feature_updates))
    if isinstance(outcome, Refusal):
        refused = UpdateFeaturesResponse(error_code=outcome.error, error_message=outcome.message)
        return unless_deposed(refused, [outcome])
    results = tuple(FeatureUpdateResult(feature=wanted.feature) for wanted in request.feature_updates)
    return UpdateFeaturesResponse(error_code=WireError.NONE, results=results)
