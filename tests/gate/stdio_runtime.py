"""The builtin runtime over stdio, on any folder."""

from mtp_conformance.adapters.builtin import FolderRuntime
from mtp_conformance.stdio import serve

if __name__ == "__main__":
    serve(FolderRuntime())
