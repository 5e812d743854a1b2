//! Functions of MIOpen that are not offered: fusion plans, reductions, what find 2.0 has besides attention, and others that Vision
//! Transformers do not need.

use hipvit_sys::miopen::miopenStatus_t;

hipvit_sys::not_offered! { miopen, miopenStatus_t, miopenStatus_t::miopenStatusUnsupportedOp;
    miopenSetAllocator
    miopenGetKernelTime
    miopenEnableProfiling
    miopenSetTensorCastType
    miopenCatForward
    miopenGLUForward
    miopenCreateFusionPlan
    miopenDestroyFusionPlan
    miopenCompileFusionPlan
    miopenFusionPlanGetWorkSpaceSize
    miopenCreateOpConvForward
    miopenCreateOpActivationForward
    miopenCreateOpBiasForward
    miopenCreateOperatorArgs
    miopenDestroyOperatorArgs
    miopenSetOpArgsConvForward
    miopenSetOpArgsActivForward
    miopenSetOpArgsBiasForward
    miopenExecuteFusionPlan
    miopenExecuteFusionPlan_v2
    miopenConvolutionBiasActivationForward
    miopenCreateReduceTensorDescriptor
    miopenDestroyReduceTensorDescriptor
    miopenSetReduceTensorDescriptor
    miopenGetReduceTensorDescriptor
    miopenGetReductionIndicesSize
    miopenGetReductionWorkspaceSize
    miopenReduceTensor
    miopenCreateConvProblem
    miopenCreateSoftmaxDescriptor
    miopenSetSoftmaxDescriptor
    miopenGetSoftmaxDescriptor
    miopenCreateFindOptions
    miopenDestroyFindOptions
    miopenSetFindOptionTuning
    miopenSetFindOptionResultsOrder
    miopenSetFindOptionWorkspaceLimit
    miopenSetFindOptionPreallocatedWorkspace
    miopenSetFindOptionPreallocatedTensor
    miopenSetFindOptionAttachBinaries
    miopenLoadSolution
    miopenSaveSolution
    miopenGetSolutionSize
    miopenGetSolutionTime
    miopenGetSolutionSolverId
    miopenGetSolverIdConvAlgorithm
    miopenCreateActivationProblem
    miopenFuseProblems
    miopenCreateBiasProblem
    miopenCreateSoftmaxProblem
    miopenRoPEForward
    miopenSetTuningPolicy
    miopenGetTuningPolicy
}
