"""HIXL: one-sided reads and writes between the memory of two engines.

    engine = hixl.Hixl()
    engine.initialize("10.0.0.1:26000")
    status, handle = engine.register_mem(hixl.MemDesc(addr=a, len=n), hixl.MemType.MEM_HOST)
    engine.connect("10.0.0.2:26000")
    engine.transfer_sync("10.0.0.2:26000", hixl.TransferOp.READ,
                         [hixl.TransferOpDesc(local_addr=a, remote_addr=b, len=n)])

Addresses are virtual addresses of the process that registered them, lengths are bytes, timeouts
milliseconds. Calls return status ints and never raise for a failed operation; last_error() says
why one failed. Beyond the HIXL API there are Buffer (Hixl.allocate), transfers of arrays,
registration in bulk, last_error and set_log_level.
"""

from .hixl import (  # noqa: F401
    ALREADY_CONNECTED,
    AUTO_CONNECT,
    CLIENT_SERVER_COMM,
    CONNECT_FAILED,
    CONNECT_PENDING,
    CONNECTED,
    CONNECTING,
    DISCONNECT_PENDING,
    DISCONNECTING,
    FAILED,
    FEATURE_NOT_SUPPORTED,
    FEATURE_SUPPORTED,
    MEM_DEVICE,
    MEM_HOST,
    NOT_CONNECT,
    NOT_CONNECTED,
    NOTIFY_FAILED,
    OPTION_AUTO_CONNECT,
    OPTION_BUFFER_POOL,
    OPTION_ENABLE_USE_FABRIC_MEM,
    OPTION_GLOBAL_RESOURCE_CONFIG,
    OPTION_LOCAL_COMM_RES,
    OPTION_RDMA_SERVICE_LEVEL,
    OPTION_RDMA_TRAFFIC_CLASS,
    PARAM_INVALID,
    READ,
    RESOURCE_EXHAUSTED,
    SUCCESS,
    TIMEOUT,
    UNSUPPORTED,
    WRITE,
    AsyncConnectStatus,
    Buffer,
    FeatureType,
    GetTransferStatusArgs,
    Hixl,
    MemDesc,
    MemType,
    NotifyDesc,
    TransferArgs,
    TransferOp,
    TransferOpDesc,
    BlockTable,
    TransferResult,
    TransferStatus,
    __version__,
    get_capability,
    last_error,
    set_log_level,
)

# Exactly the names of the HIXL API; what this package adds is imported by name.
__all__ = [
    "SUCCESS", "PARAM_INVALID", "TIMEOUT", "NOT_CONNECTED", "ALREADY_CONNECTED", "NOTIFY_FAILED",
    "UNSUPPORTED", "FAILED", "RESOURCE_EXHAUSTED",
    "OPTION_ENABLE_USE_FABRIC_MEM", "OPTION_RDMA_TRAFFIC_CLASS", "OPTION_RDMA_SERVICE_LEVEL",
    "OPTION_BUFFER_POOL", "OPTION_GLOBAL_RESOURCE_CONFIG", "OPTION_AUTO_CONNECT",
    "OPTION_LOCAL_COMM_RES",
    "FEATURE_SUPPORTED", "FEATURE_NOT_SUPPORTED",
    "MemType", "MEM_DEVICE", "MEM_HOST",
    "TransferOp", "READ", "WRITE",
    "TransferStatus",
    "AsyncConnectStatus", "NOT_CONNECT", "CONNECT_PENDING", "CONNECTING", "CONNECTED",
    "CONNECT_FAILED", "DISCONNECT_PENDING", "DISCONNECTING",
    "FeatureType", "AUTO_CONNECT", "CLIENT_SERVER_COMM",
    "MemDesc", "TransferOpDesc", "BlockTable", "TransferArgs", "GetTransferStatusArgs", "TransferResult",
    "NotifyDesc",
    "Hixl", "get_capability",
]
