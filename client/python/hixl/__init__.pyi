"""Types of the package hixl. Names marked "beyond the HIXL API" are additions of hixld."""

from types import TracebackType
from typing import Any, ClassVar, Dict, List, Optional, Sequence, Tuple, Type, Union

__version__: str

SUCCESS: int  # 0
PARAM_INVALID: int  # 103900: a bad argument
TIMEOUT: int  # 103901: the deadline passed
NOT_CONNECTED: int  # 103902: no link to that peer
ALREADY_CONNECTED: int  # 103903: the link exists already
NOTIFY_FAILED: int  # 103904: reserved, never returned
UNSUPPORTED: int  # 103905: not available for this engine
FAILED: int  # 503900: any other failure
RESOURCE_EXHAUSTED: int  # 203900: a queue, slot or limit is used up

OPTION_ENABLE_USE_FABRIC_MEM: str
OPTION_RDMA_TRAFFIC_CLASS: str
OPTION_RDMA_SERVICE_LEVEL: str
OPTION_BUFFER_POOL: str
OPTION_GLOBAL_RESOURCE_CONFIG: str
OPTION_AUTO_CONNECT: str
OPTION_LOCAL_COMM_RES: str

FEATURE_SUPPORTED: int  # 1
FEATURE_NOT_SUPPORTED: int  # 0

class _Enum:
    __members__: ClassVar[Dict[str, Any]]
    def __init__(self, value: int) -> None: ...
    def __int__(self) -> int: ...
    def __index__(self) -> int: ...
    def __hash__(self) -> int: ...
    @property
    def name(self) -> str: ...
    @property
    def value(self) -> int: ...

class MemType(_Enum):
    MEM_DEVICE: ClassVar[MemType]
    MEM_HOST: ClassVar[MemType]

class TransferOp(_Enum):
    """READ copies from the peer to us, WRITE from us to the peer."""

    READ: ClassVar[TransferOp]
    WRITE: ClassVar[TransferOp]

class TransferStatus(_Enum):
    WAITING: ClassVar[TransferStatus]
    COMPLETED: ClassVar[TransferStatus]
    TIMEOUT: ClassVar[TransferStatus]  # never produced
    FAILED: ClassVar[TransferStatus]

class AsyncConnectStatus(_Enum):
    NOT_CONNECT: ClassVar[AsyncConnectStatus]
    CONNECT_PENDING: ClassVar[AsyncConnectStatus]
    CONNECTING: ClassVar[AsyncConnectStatus]
    CONNECTED: ClassVar[AsyncConnectStatus]
    CONNECT_FAILED: ClassVar[AsyncConnectStatus]
    DISCONNECT_PENDING: ClassVar[AsyncConnectStatus]
    DISCONNECTING: ClassVar[AsyncConnectStatus]

class FeatureType(_Enum):
    AUTO_CONNECT: ClassVar[FeatureType]
    CLIENT_SERVER_COMM: ClassVar[FeatureType]

MEM_DEVICE: MemType
MEM_HOST: MemType
READ: TransferOp
WRITE: TransferOp
NOT_CONNECT: AsyncConnectStatus
CONNECT_PENDING: AsyncConnectStatus
CONNECTING: AsyncConnectStatus
CONNECTED: AsyncConnectStatus
CONNECT_FAILED: AsyncConnectStatus
DISCONNECT_PENDING: AsyncConnectStatus
DISCONNECTING: AsyncConnectStatus
AUTO_CONNECT: FeatureType
CLIENT_SERVER_COMM: FeatureType

class MemDesc:
    """A range to register: address and length in bytes."""

    addr: int
    len: int
    def __init__(self, addr: int, len: int) -> None: ...

class BlockTable:
    """Blocks of one size at equal distances: block i is the block_bytes bytes at
    base + i * stride, for i below count."""

    base: int
    stride: int
    block_bytes: int
    count: int
    def __init__(self, base: int, stride: int, block_bytes: int, count: int) -> None: ...

class TransferOpDesc:
    """One piece of a transfer: len bytes between local_addr (ours) and remote_addr (the peer's)."""

    local_addr: int
    remote_addr: int
    len: int
    def __init__(self, local_addr: int, remote_addr: int, len: int) -> None: ...

class TransferArgs:
    user_data: int  # 0; get_all_transfer_status gives it back
    def __init__(self) -> None: ...

class GetTransferStatusArgs:
    max_query_count: int
    skip_waiting: bool
    def __init__(self, max_query_count: int = ..., skip_waiting: bool = ...) -> None: ...

class TransferResult:
    req: int
    user_data: int
    @property
    def status(self) -> TransferStatus: ...
    def __init__(self) -> None: ...

class NotifyDesc:
    """A short message to a peer; each part has at most 1024 bytes of UTF-8."""

    name: str
    notify_msg: str
    def __init__(self, name: str, notify_msg: str) -> None: ...

class Buffer:
    """Memory of the daemon's pool, mapped into this process (beyond the HIXL API).

    Supports the buffer protocol and DLPack. Views keep the memory, also after free().
    """

    @property
    def address(self) -> int: ...
    @property
    def nbytes(self) -> int: ...
    @property
    def mem_type(self) -> MemType: ...
    def numpy(self, dtype: Any = ..., shape: Union[None, int, Sequence[int]] = ...) -> Any:
        """As a NumPy array without a copy; without a shape, one dimension of what fits."""
    def torch(self, dtype: Any = ..., shape: Union[None, int, Sequence[int]] = ...) -> Any:
        """As a torch tensor without a copy; dtype is a torch.dtype or its name."""
    def free(self) -> None:
        """Gives the memory up; it returns to the pool once no view is left. Deregister first."""
    def __len__(self) -> int: ...
    def __dlpack__(self, **kwargs: Any) -> Any: ...
    def __dlpack_device__(self) -> Tuple[int, int]: ...

class Hixl:
    """One engine. Statuses are ints and failed operations never raise; last_error() says why.

    Before initialize and after finalize every method returns FAILED. All methods but finalize may
    be called from any thread; those that can wait release the interpreter's lock.
    """

    def __init__(self) -> None: ...
    def initialize(
        self,
        local_engine: str,
        options: Dict[str, str] = ...,
        *,
        listen_on_any_port: bool = ...,
        device_id: int = ...,
    ) -> int:
        """Makes this object an engine named local_engine: "a.b.c.d:port" or "[v6]:port", without
        port (or with one of 0 or below) for an engine that only connects.

        PARAM_INVALID: a bad option or address; FAILED: the address is taken, or there is no daemon.
        On a live engine SUCCESS, and nothing happens. The keywords are beyond the HIXL API:
        listen_on_any_port finds a free port (see engine_id), device_id is a logical device
        (-1: from ASCEND_DEVICE_ID, else 0).
        """
    def finalize(self) -> None:
        """Releases everything; harmless when repeated. Not concurrent with other calls."""
    def engine_id(self) -> str:
        """The name under which peers reach this engine (beyond the HIXL API)."""
    def __enter__(self) -> Hixl: ...
    def __exit__(
        self,
        kind: Optional[Type[BaseException]],
        value: Optional[BaseException],
        traceback: Optional[TracebackType],
    ) -> None: ...
    def register_mem(self, mem_desc: MemDesc, mem_type: MemType, /) -> Tuple[int, int]:
        """(status, handle); the handle is 0 on failure. The memory is not touched.

        The very same range gives the same handle. PARAM_INVALID: address or length 0, overflow, or
        a partial overlap with a registered range of the same type.
        """
    def deregister_mem(self, handle: int, /) -> int:
        """PARAM_INVALID for 0, SUCCESS for an unknown handle."""
    def register_mem_batch(
        self, mem_descs: Sequence[MemDesc], mem_type: MemType
    ) -> Tuple[int, List[int]]:
        """register_mem for many ranges in one round trip, all or none (beyond the HIXL API)."""
    def deregister_mem_batch(self, handles: Sequence[int]) -> int:
        """deregister_mem for many handles in one round trip (beyond the HIXL API)."""
    def register_memfd(
        self, mem_desc: MemDesc, mem_type: MemType, fd: int, offset: int = ...
    ) -> Tuple[int, int]:
        """Registers a range that maps bytes from `offset` of a memfd that is sealed against
        shrinking; the daemon maps the same pages (beyond the HIXL API)."""
    def allocate(self, nbytes: int, mem_type: MemType = ...) -> Buffer:
        """A Buffer from the daemon's pool (beyond the HIXL API).

        Raises MemoryError when the pool is exhausted, ValueError for a bad size, RuntimeError for
        anything else; the text names the limit and the option that changes it.
        """
    def connect(self, remote_engine: str, timeout_in_millis: int = ...) -> int:
        """Links this engine to a peer, one way: we may then read and write the peer's memory.

        ALREADY_CONNECTED, FAILED (nobody listens), TIMEOUT, PARAM_INVALID.
        """
    def disconnect(self, remote_engine: str, timeout_in_millis: int = ...) -> int:
        """Drops the link and our outstanding transfers on it; NOT_CONNECTED without one."""
    def connect_async(self, remote_engine: str, timeout_in_millis: int = ...) -> int:
        """connect in the background. RESOURCE_EXHAUSTED: the queue of tasks is full."""
    def disconnect_async(self, remote_engine: str, timeout_in_millis: int = ...) -> int: ...
    def get_async_connect_status(self, remote_engine: str, /) -> Tuple[int, AsyncConnectStatus]: ...
    def get_all_async_connect_status(self) -> Tuple[int, Dict[str, AsyncConnectStatus]]:
        """Peers in NOT_CONNECT are left out."""
    def transfer_sync(
        self,
        remote_engine: str,
        op: TransferOp,
        op_descs: Sequence[TransferOpDesc],
        timeout_in_millis: int = ...,
    ) -> int:
        """Moves every piece and waits for the last.

        TIMEOUT or FAILED: the target ranges hold an unknown mix, nothing lands in them afterwards.
        PARAM_INVALID: a bad timeout, a null address, an empty list, a length of 0, memory that is
        not registered.
        """
    def transfer_async(
        self,
        remote_engine: str,
        op: TransferOp,
        op_descs: Sequence[TransferOpDesc],
        args: TransferArgs = ...,
    ) -> Tuple[int, int]:
        """Starts the same: (status, req); req is 0 on failure."""
    def transfer_sync_arrays(
        self,
        remote_engine: str,
        op: TransferOp,
        local_addresses: Any,
        remote_addresses: Any,
        lengths: Any,
        timeout_in_millis: int = ...,
    ) -> int:
        """transfer_sync with the batch as three one-dimensional contiguous arrays of 64-bit
        integers (NumPy, array, memoryview) of one length (beyond the HIXL API)."""
    def transfer_async_arrays(
        self,
        remote_engine: str,
        op: TransferOp,
        local_addresses: Any,
        remote_addresses: Any,
        lengths: Any,
        args: TransferArgs = ...,
    ) -> Tuple[int, int]: ...
    def transfer_sync_blocks(
        self,
        remote_engine: str,
        op: TransferOp,
        local_tables: Union[BlockTable, Sequence[BlockTable]],
        remote_tables: Union[BlockTable, Sequence[BlockTable]],
        local_blocks: Any,
        remote_blocks: Any,
        timeout_in_millis: int = 1000,
    ) -> int:
        """transfer_sync of whole blocks: block local_blocks[i] of each local table and block
        remote_blocks[i] of the remote table at the same place, for every i and every table (the
        layers of a cache). Indices are contiguous one-dimensional arrays of 32- or 64-bit
        integers; a negative one raises IndexError, one beyond its table is PARAM_INVALID."""
    def transfer_async_blocks(
        self,
        remote_engine: str,
        op: TransferOp,
        local_tables: Union[BlockTable, Sequence[BlockTable]],
        remote_tables: Union[BlockTable, Sequence[BlockTable]],
        local_blocks: Any,
        remote_blocks: Any,
        args: TransferArgs = ...,
    ) -> Tuple[int, int]: ...
    def get_transfer_status(self, req: int, /) -> Tuple[int, TransferStatus]:
        """COMPLETED and FAILED are told once; an unknown req is (PARAM_INVALID, FAILED)."""
    def get_all_transfer_status(
        self, args: GetTransferStatusArgs = ...
    ) -> Tuple[int, List[TransferResult]]:
        """All outstanding transfers in order of submission. UNSUPPORTED with engines that take
        neither LocalCommRes 1.3 nor protocol_desc."""
    def send_notify(
        self, remote_engine: str, notify: NotifyDesc, timeout_in_millis: int = ...
    ) -> int:
        """Sends a short message over an existing link and waits until the peer's engine has it.

        RESOURCE_EXHAUSTED: the peer has not fetched the 4096 that were sent before. TIMEOUT: it may
        have arrived or not; 1 ms is over before anything is sent."""
    def get_notifies(self) -> Tuple[int, List[NotifyDesc]]:
        """What has arrived since the last call, in order for each sender."""

def get_capability(feature_type: FeatureType, /) -> Tuple[int, int]:
    """(status, FEATURE_SUPPORTED or FEATURE_NOT_SUPPORTED). Needs no engine."""

def last_error() -> str:
    """Why the last failing call of this thread failed (beyond the HIXL API)."""

def set_log_level(level: str) -> None:
    """Messages on stderr from this level on: DEBUG, INFO, WARN or ERROR."""
