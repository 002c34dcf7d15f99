"""A model that takes as long as it is told to, if it is still wanted. Run by MLServer, in its own Python.

While a call runs, a file stands in the folder `desk`.
"""

import asyncio
import uuid
from pathlib import Path

import numpy as np
from mlserver import MLModel
from mlserver.codecs import NumpyCodec, StringCodec
from mlserver.types import InferenceRequest, InferenceResponse


class Shout(MLModel):  # type: ignore[misc]
    """TEXT, SECONDS → SHOUTED, LENGTHS."""

    async def load(self) -> bool:
        extra = self.settings.parameters.extra
        self.desk = Path(extra["desk"])
        await asyncio.sleep(extra.get("load_s", 0.0))
        return True

    async def predict(self, payload: InferenceRequest) -> InferenceResponse:
        given = {tensor.name: tensor for tensor in payload.inputs}
        texts = StringCodec.decode_input(given["TEXT"])
        await self._work(float(NumpyCodec.decode_input(given["SECONDS"])[0]))
        if "raise" in texts:
            raise RuntimeError("private")
        shouted = StringCodec.encode_output("SHOUTED", [text.upper() for text in texts])
        lengths = NumpyCodec.encode_output("LENGTHS", np.array([len(text) for text in texts], dtype=np.int64))
        return InferenceResponse(model_name=self.name, outputs=[shouted, lengths])

    async def _work(self, seconds: float) -> None:
        paper = self.desk / uuid.uuid4().hex
        paper.touch()
        try:
            await asyncio.sleep(seconds)
        finally:
            paper.unlink()
