"""The interface as documents: OpenAPI, AsyncAPI, and pages to read and try them."""
