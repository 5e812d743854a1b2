//! MIOpen functions that are not supported: cuDNN has them in its graph API only, such as layer normalisation and
//! attention, or not at all. Immediate mode and find 2.0 are other ways to the same convolutions.

use hipvit_sys::miopen::miopenStatus_t;

hip_provider::not_offered! { miopen, miopenStatus_t, miopenStatus_t::miopenStatusUnsupportedOp;
    miopenConvolutionForwardGetSolutionCount
    miopenConvolutionForwardGetSolution
    miopenConvolutionForwardGetSolutionWorkspaceSize
    miopenConvolutionForwardCompileSolution
    miopenConvolutionForwardImmediate
    miopenLayerNormForward
    miopenCreateMhaProblem
    miopenCreateMhaDescriptor
    miopenSetMhaDescriptor
    miopenGetMhaDescriptor
    miopenDestroyProblem
    miopenSetProblemTensorDescriptor
    miopenFindSolutions
    miopenRunSolution
    miopenDestroySolution
    miopenGetSolutionWorkspaceSize
    miopenAddLayerNormForward
    miopenT5LayerNormForward
}
