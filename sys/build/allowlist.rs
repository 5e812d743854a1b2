//! Names to bind, by library. A pattern matches a whole name; the types that a function needs are bound with it. A function that
//! the headers lack is left out of the table, so that ROCm 6 headers work too.

pub(crate) struct Library {
    /// The file, and the module of `hipvit_sys`.
    pub(crate) module: &'static str,
    /// The table type in that module.
    pub(crate) table: &'static str,
    /// Status type, and its constant that means success.
    pub(crate) status: (&'static str, &'static str),
    pub(crate) headers: &'static [&'static str],
    /// True if the header is C++ only.
    pub(crate) cpp: bool,
    pub(crate) functions: &'static [&'static str],
    /// Types that no prototype names, but that are passed as `void *`.
    pub(crate) types: &'static [&'static str],
    pub(crate) constants: &'static [&'static str],
}

/// The definitions with which the headers are compiled.
pub(crate) const DEFINES: &[&str] = &[
    "-D__HIP_PLATFORM_AMD__=1",
    "-DMIOPEN_BETA_API=1",
    "-DROCBLAS_BETA_FEATURES_API=1",
    // hip/hip_fp8.h counts as included: hipsparselt.h includes it, uses nothing of it, and GCC does not compile it.
    "-DHIP_INCLUDE_HIP_HIP_FP8_H=1",
];

pub(crate) const LIBRARIES: &[Library] = &[
    Library {
        module: "hip",
        table: "Hip",
        status: ("hipError_t", "hipSuccess"),
        headers: &["hip/hip_runtime_api.h", "hip/library_types.h"],
        cpp: false,
        functions: &[
            // devices
            "hipInit|hip(Runtime|Driver)GetVersion|hipGetDeviceCount|hip[GS]etDevice|hipGetDevicePropertiesR0600|hipChooseDeviceR0600",
            "hipDeviceGet(|Attribute|Name|Uuid|ByPCIBusId|PCIBusId|Limit|StreamPriorityRange|P2PAttribute)|hipDeviceSetLimit",
            "hipDevice(Synchronize|Reset|TotalMem|ComputeCapability)|hip[GS]etDeviceFlags",
            "hipDevice(CanAccess|Enable|Disable)Peer(|Access)|hipExtGetLinkTypeAndHopCount",
            // errors
            "hip(GetLast|PeekAtLast|ExtGetLast)Error|hip(Get|DrvGet)Error(Name|String)",
            // contexts, for callers in a process with a framework
            "hipCtx(GetCurrent|SetCurrent|GetDevice)|hipDevicePrimaryCtx(Retain|Release|GetState)",
            // streams and events
            "hipStreamCreate(|WithFlags|WithPriority)|hipExtStream(CreateWithCUMask|GetCUMask)",
            "hipStream(Destroy|Query|Synchronize|WaitEvent|GetFlags|GetPriority|GetDevice|GetId|AddCallback)|hipLaunchHostFunc",
            "hipStream(Wait|Write)Value(32|64)",
            "hipEvent(Create|CreateWithFlags|Record|RecordWithFlags|Query|Synchronize|ElapsedTime|Destroy)",
            // memory
            "hip(Malloc|Free|ExtMallocWithFlags|MallocManaged|MallocPitch)|hipHost(Malloc|Alloc|Free|Register|Unregister|GetDevicePointer|GetFlags)",
            "hipMem(GetInfo|PtrGetInfo|GetAddressRange|Advise|PrefetchAsync)",
            "hipMemcpy(|Async|WithStream|Peer|PeerAsync|2D|2DAsync|HtoD|DtoH|DtoD|HtoDAsync|DtoHAsync|DtoDAsync)",
            "hipMemset(|Async|2D|2DAsync|D8|D16|D32|D8Async|D16Async|D32Async)",
            "hipPointerGetAttributes?|hipDrvPointerGetAttributes",
            // stream-ordered pools
            "hip(Malloc|Free)Async|hipMallocFromPoolAsync|hipDevice(GetDefault|Get|Set)MemPool",
            "hipMemPool(Create|Destroy|GetAttribute|SetAttribute|SetAccess|GetAccess|TrimTo)",
            // virtual memory
            "hipMem(AddressReserve|AddressFree|Create|Release|Map|Unmap|SetAccess|GetAccess|GetAllocationGranularity)",
            // inter-process communication
            "hipIpc(GetMemHandle|OpenMemHandle|CloseMemHandle|GetEventHandle|OpenEventHandle)",
            // modules and launches
            "hipModule(Load|LoadData|LoadDataEx|Unload|GetFunction|GetFunctionCount|GetGlobal|LaunchKernel|LaunchCooperativeKernel)",
            "hipDrvLaunchKernelEx|hipFunc(GetAttribute|SetAttribute|SetCacheConfig)",
            "hipModuleOccupancyMax(ActiveBlocksPerMultiprocessor|PotentialBlockSize)(|WithFlags)",
            // graphs
            "hipStream(BeginCapture|BeginCaptureToGraph|EndCapture|IsCapturing|GetCaptureInfo_v2|UpdateCaptureDependencies)",
            "hipThreadExchangeStreamCaptureMode",
            "hipGraph(Create|Destroy|Clone|Instantiate|InstantiateWithFlags|InstantiateWithParams|Launch|Upload|DebugDotPrint)",
            "hipGraphExec(Destroy|Update|GetFlags|KernelNodeSetParams|MemcpyNodeSetParams1D|MemsetNodeSetParams)",
            "hipGraph(GetNodes|GetRootNodes|GetEdges|AddDependencies|DestroyNode|NodeGetType|NodeGetDependencies|NodeGetDependentNodes)",
            "hipGraph(AddKernelNode|AddMemcpyNode1D|AddMemsetNode|AddEmptyNode|AddHostNode|AddChildGraphNode|AddEventRecordNode|AddEventWaitNode)",
            "hipGraphKernelNode[GS]etParams",
            // profiling
            "hipProfiler(Start|Stop)",
        ],
        types: &[
            "hipDataType",
            "hipDeviceProp_tR0600",
            "hipDeviceArch_t",
            "hipGraphNodeType",
            "hipJitOption",
            "hipJitInputType",
            "hipLimit_t",
        ],
        constants: &[
            "HIP_VERSION(|_MAJOR|_MINOR|_PATCH)",
            "hipStream(Default|NonBlocking)|hipEvent(Default|BlockingSync|DisableTiming|Interprocess|DisableSystemFence|ReleaseToSystem|ReleaseToDevice)",
            "hipHostMalloc[A-Za-z]*|hipHostRegister[A-Za-z]*|hipDeviceMalloc[A-Za-z]*|hipMemAttachGlobal|hipDeviceSchedule[A-Za-z]*",
            "hipIpcMemLazyEnablePeerAccess|hipArchVariant|hipOccupancyDefault",
        ],
    },
    Library {
        module: "hiprtc",
        table: "Hiprtc",
        status: ("hiprtcResult", "HIPRTC_SUCCESS"),
        headers: &["hip/hiprtc.h"],
        cpp: false,
        functions: &["hiprtc.*"],
        types: &[],
        constants: &[],
    },
    Library {
        module: "rocblas",
        table: "Rocblas",
        status: ("rocblas_status_", "rocblas_status_success"),
        headers: &["rocblas/rocblas.h"],
        cpp: false,
        functions: &[
            "rocblas_(create|destroy)_handle|rocblas_initialize|rocblas_status_to_string|rocblas_get_version_string(|_size)",
            "rocblas_[gs]et_(stream|pointer_mode|atomics_mode|math_mode)|rocblas_pointer_to_mode",
            "rocblas_set_workspace|rocblas_[gs]et_device_memory_size|rocblas_is_(managing|user_managing)_device_memory",
            "rocblas_(start|stop)_device_memory_size_query|rocblas_is_device_memory_size_query",
            "rocblas_gemm_(|batched_|strided_batched_)ex|rocblas_gemm_(|batched_|strided_batched_)ex_get_solutions(|_by_type)",
            "rocblas_set_solution_fitness_query|rocblas_set_performance_metric|rocblas_get_performance_metric",
            "rocblas_[sh]gemm(|_batched|_strided_batched)|rocblas_sgemv(|_batched|_strided_batched)",
            "rocblas_(axpy|scal|dot|nrm2)_ex|rocblas_s(axpy|scal|dot|nrm2|copy|asum)|rocblas_sgeam|rocblas_isamax",
            "rocblas_[gs]et_(vector|matrix)(|_async)",
        ],
        types: &["rocblas_gemm_flags_?", "rocblas_gemm_algo_?"],
        constants: &["ROCBLAS_VERSION_(MAJOR|MINOR|PATCH)"],
    },
    Library {
        module: "hipblaslt",
        table: "Hipblaslt",
        status: ("hipblasStatus_t", "HIPBLAS_STATUS_SUCCESS"),
        headers: &["hipblaslt/hipblaslt.h"],
        cpp: true,
        functions: &["hipblasLt[A-Z][A-Za-z]*"],
        types: &[
            "hipblasOperation_t",
            "hipblasLtEpilogue_t",
            "hipblasLtOrder_t",
            "hipblasLtMatmulMatrixScale_t",
            "hipblasLtPointerMode_t",
        ],
        constants: &["HIPBLASLT_VERSION_(MAJOR|MINOR|PATCH)"],
    },
    Library {
        module: "hipsparselt",
        table: "Hipsparselt",
        status: ("hipsparseStatus_t", "HIPSPARSE_STATUS_SUCCESS"),
        headers: &["hipsparselt/hipsparselt.h"],
        cpp: true,
        functions: &[
            "hipsparseLt(GetVersion|Init|Destroy)",
            "hipsparseLt(Dense|Structured)DescriptorInit|hipsparseLtMatDescriptorDestroy|hipsparseLtMatDesc[GS]etAttribute",
            "hipsparseLtMatmul(|Search|DescriptorInit|Desc[GS]etAttribute|GetWorkspace|PlanInit|PlanDestroy)",
            "hipsparseLtMatmulAlg(SelectionInit|[GS]etAttribute)",
            "hipsparseLtSpMMA(Prune|PruneCheck|CompressedSize|Compress)2?",
        ],
        types: &[],
        constants: &["hipsparseltVersion(Major|Minor|Patch)"],
    },
    Library {
        module: "miopen",
        table: "Miopen",
        status: ("miopenStatus_t", "miopenStatusSuccess"),
        headers: &["miopen/miopen.h"],
        cpp: true,
        functions: &[
            "miopen(GetErrorString|GetVersion|Create|CreateWithStream|Destroy|SetStream|GetStream|SetAllocator)",
            "miopen(GetKernelTime|EnableProfiling)|miopen[GS]etTuningPolicy",
            // tensors
            "miopen(Create|Get|Set|Destroy)TensorDescriptor|miopenSetTensorDescriptorV2|miopenSetNdTensorDescriptorWithLayout",
            "miopenSetTensorCastType|miopen[GS]et4dTensorDescriptor(|Ex)|miopenGetTensor(DescriptorSize|NumBytes)",
            "miopen(Op|Transform|Set|Scale)Tensor",
            // convolution: the classic calls, immediate mode, fused bias and activation
            "miopen(Create|Get|Init|Destroy)ConvolutionDescriptor|miopen(Get|Init)ConvolutionNdDescriptor|miopenGetConvolutionSpatialDim",
            "miopen[GS]etConvolution(Attribute|FindMode|GroupCount)|miopenGetConvolution(|Nd)ForwardOutputDim",
            "miopenConvolutionForward(|Bias|GetWorkSpaceSize)|miopenFindConvolutionForwardAlgorithm|miopenConvolutionBiasActivationForward",
            "miopenConvolutionForward(GetSolutionCount|GetSolution|GetSolutionWorkspaceSize|CompileSolution|Immediate)",
            // find 2.0
            "miopenCreate(Conv|Bias|Activation|Softmax|Mha)Problem|miopen(Destroy|Fuse)Problems?|miopenSetProblemTensorDescriptor",
            "miopen(Create|Destroy)FindOptions|miopenSetFindOption[A-Za-z]*|miopenFindSolutions",
            "miopen(Run|Destroy|Load|Save)Solution|miopenGetSolution(Size|SolverId|Time|WorkspaceSize)|miopenGetSolverIdConvAlgorithm",
            "miopen(Create|Get|Set)(Mha|Softmax)Descriptor",
            // other operations of a transformer
            "miopen(Create|Get|Set|Destroy)ActivationDescriptor|miopenActivationForward",
            "miopenSoftmaxForward(|_V2)|miopen(|Add|T5)LayerNormForward|miopenGLUForward|miopenRoPEForward|miopenCatForward",
            "miopen(Create|Get|Set|Destroy)ReduceTensorDescriptor|miopenReduceTensor|miopenGetReduction(Indices|Workspace)Size",
            // fusion plans
            "miopen(Create|Compile|Execute|Destroy)FusionPlan|miopenFusionPlanGetWorkSpaceSize|miopenExecuteFusionPlan_v2",
            "miopenCreateOp(ConvForward|BiasForward|ActivationForward)|miopen(Create|Destroy)OperatorArgs|miopenSetOpArgs(Conv|Bias|Activ)Forward",
        ],
        types: &["miopenTensorArgumentId_t"],
        constants: &["MIOPEN_VERSION_(MAJOR|MINOR|PATCH)"],
    },
    Library {
        module: "rccl",
        table: "Rccl",
        status: ("ncclResult_t", "ncclSuccess"),
        headers: &["rccl/rccl.h"],
        cpp: false,
        functions: &[
            "nccl(GetVersion|GetUniqueId|GetErrorString|GetLastError|MemAlloc|MemFree)",
            "ncclComm(InitAll|InitRank|InitRankConfig|Split|Finalize|Destroy|Abort|Count|CuDevice|UserRank|GetAsyncError|Register|Deregister)",
            "nccl(AllReduce|Reduce|Broadcast|Bcast|AllGather|ReduceScatter|AllToAll|Gather|Scatter|Send|Recv)",
            "ncclRedOp(CreatePreMulSum|Destroy)|ncclGroup(Start|End)",
        ],
        types: &[],
        constants: &["NCCL_(MAJOR|MINOR|PATCH|VERSION_CODE|UNIQUE_ID_BYTES|CONFIG_UNDEF_INT)"],
    },
    Library {
        module: "amd_smi",
        table: "AmdSmi",
        status: ("amdsmi_status_t", "AMDSMI_STATUS_SUCCESS"),
        headers: &["amd_smi/amdsmi.h"],
        cpp: false,
        functions: &[
            "amdsmi_(init|shut_down|status_code_to_string|get_lib_version)",
            "amdsmi_get_(socket|processor)_handles",
            // identity
            "amdsmi_get_gpu_(bdf_id|id|asic_info|driver_info)",
            // power, temperature, clocks
            "amdsmi_get_(power_info|energy_count|temp_metric|clk_freq)",
            // load and memory
            "amdsmi_get_gpu_(activity|busy_percent|memory_total|memory_usage|total_ecc_count)",
            // PCIe and xGMI
            "amdsmi_get_gpu_pci_(bandwidth|replay_counter)|amdsmi_get_xgmi_info",
            "amdsmi_topo_get_(link_type|link_weight|numa_node_number)|amdsmi_is_P2P_accessible",
        ],
        types: &["amdsmi_init_flags_t"],
        constants: &[],
    },
];
