"""JSON Schemas of the documents, for editors that check a file while it is written."""

from typing import Any

from gridloom.wire.documents_check import Document
from gridloom.wire.grid_document import GridDocument
from gridloom.wire.job_document import JobDocument

DIALECT = "https://json-schema.org/draft/2020-12/schema"


def job_schema() -> dict[str, Any]:
    """Return the JSON Schema of a job file."""
    return _schema(JobDocument, "gridloom job")


def grid_schema() -> dict[str, Any]:
    """Return the JSON Schema of a grid file."""
    return _schema(GridDocument, "gridloom grid")


def _schema(model: type[Document], title: str) -> dict[str, Any]:
    return {"$schema": DIALECT, **model.model_json_schema(mode="validation"), "title": title}
