//! MIOpen: its status, the descriptors of tensors, convolutions and activations, and what no provider offers.
//!
//! Descriptors are objects of this crate on the host, as MIOpen's are objects of MIOpen. A provider reads copies of them.

mod activation;
mod convolution;
mod status;
mod tensor;

pub use activation::{Activation, activation, create_activation, destroy_activation, set_activation};
pub use convolution::{
    Convolution, change_convolution, convolution, create_convolution, destroy_convolution, read_axes,
    set_convolution,
};
pub use status::{BAD_PARAMETER, UNSUPPORTED, put, put_all, run};
pub use tensor::{
    TensorDescriptor, create_tensor, destroy_tensor, element_size, read_numbers, set_tensor, tensor,
};

/// Exports MIOpen's functions that all providers implement alike: the names of statuses, and the functions of tensor, convolution and
/// activation descriptors. Exports the functions that no provider offers, too: fusion plans, reductions, and most of find 2.0.
#[macro_export]
macro_rules! shared_miopen {
    () => {
        $crate::status_name! { miopen, miopenStatus_t, miopenGetErrorString, "miopenStatusUnknownError" }

        $crate::export! { miopen, $crate::sys::miopen::miopenStatus_t, $crate::miopen::run;
            fn miopenCreateTensorDescriptor(to: *mut $crate::sys::miopen::miopenTensorDescriptor_t) {
                $crate::miopen::create_tensor(to)
            }

            fn miopenDestroyTensorDescriptor(of: $crate::sys::miopen::miopenTensorDescriptor_t) {
                $crate::miopen::destroy_tensor(of)
            }

            fn miopenSet4dTensorDescriptor(
                of: $crate::sys::miopen::miopenTensorDescriptor_t, kind: $crate::sys::miopen::miopenDataType_t,
                n: i32, c: i32, h: i32, w: i32,
            ) {
                $crate::miopen::set_tensor(of, kind, &[n, c, h, w], None)
            }

            fn miopenSet4dTensorDescriptorEx(
                of: $crate::sys::miopen::miopenTensorDescriptor_t, kind: $crate::sys::miopen::miopenDataType_t,
                n: i32, c: i32, h: i32, w: i32, n_stride: i32, c_stride: i32, h_stride: i32, w_stride: i32,
            ) {
                $crate::miopen::set_tensor(of, kind, &[n, c, h, w], Some(&[n_stride, c_stride, h_stride, w_stride]))
            }

            fn miopenSetTensorDescriptor(
                of: $crate::sys::miopen::miopenTensorDescriptor_t, kind: $crate::sys::miopen::miopenDataType_t,
                count: i32, lengths: *const i32, strides: *const i32,
            ) {
                let read = |numbers| $crate::miopen::read_numbers(numbers, count);
                let strides = (!strides.is_null()).then(|| read(strides)).transpose()?;
                $crate::miopen::set_tensor(of, kind, &read(lengths)?, strides.as_deref())
            }

            fn miopenSetTensorDescriptorV2(
                of: $crate::sys::miopen::miopenTensorDescriptor_t, kind: $crate::sys::miopen::miopenDataType_t,
                count: i32, lengths: *const usize, strides: *const usize,
            ) {
                let read = |numbers| $crate::miopen::read_numbers(numbers, count);
                let strides = (!strides.is_null()).then(|| read(strides)).transpose()?;
                $crate::miopen::set_tensor(of, kind, &read(lengths)?, strides.as_deref())
            }

            /// Layouts with vectors of channels (NCHWc) are not supported.
            fn miopenSetNdTensorDescriptorWithLayout(
                of: $crate::sys::miopen::miopenTensorDescriptor_t, kind: $crate::sys::miopen::miopenDataType_t,
                layout: $crate::sys::miopen::miopenTensorLayout_t, lengths: *const i32, count: i32,
            ) {
                let lengths = $crate::miopen::read_numbers(lengths, count)?;
                let strides = $crate::miopen::TensorDescriptor::strides_of(layout, &lengths)?;
                $crate::miopen::set_tensor(of, kind, &lengths, Some(&strides))
            }

            fn miopenGetTensorDescriptorSize(of: $crate::sys::miopen::miopenTensorDescriptor_t, count: *mut i32) {
                $crate::miopen::put_all(count, &[$crate::miopen::tensor(of)?.lengths.len()])
            }

            fn miopenGetTensorDescriptor(
                of: $crate::sys::miopen::miopenTensorDescriptor_t, kind: *mut $crate::sys::miopen::miopenDataType_t,
                lengths: *mut i32, strides: *mut i32,
            ) {
                let tensor = $crate::miopen::tensor(of)?;
                $crate::miopen::put(kind, tensor.kind)?;
                $crate::miopen::put_all(lengths, &tensor.lengths)?;
                $crate::miopen::put_all(strides, &tensor.strides)
            }

            fn miopenGet4dTensorDescriptor(
                of: $crate::sys::miopen::miopenTensorDescriptor_t, kind: *mut $crate::sys::miopen::miopenDataType_t,
                n: *mut i32, c: *mut i32, h: *mut i32, w: *mut i32, n_stride: *mut i32, c_stride: *mut i32,
                h_stride: *mut i32, w_stride: *mut i32,
            ) {
                let tensor = $crate::miopen::tensor(of)?;
                let ([_, _, _, _], [_, _, _, _]) = (&tensor.lengths[..], &tensor.strides[..]) else {
                    return Err($crate::miopen::BAD_PARAMETER);
                };
                $crate::miopen::put(kind, tensor.kind)?;
                for (to, value) in [n, c, h, w, n_stride, c_stride, h_stride, w_stride]
                    .into_iter()
                    .zip(tensor.lengths.iter().chain(&tensor.strides))
                {
                    $crate::miopen::put_all(to, &[*value])?;
                }
                Ok(())
            }

            fn miopenGetTensorNumBytes(of: $crate::sys::miopen::miopenTensorDescriptor_t, bytes: *mut usize) {
                $crate::miopen::put(bytes, $crate::miopen::tensor(of)?.bytes()?)
            }

            fn miopenCreateConvolutionDescriptor(to: *mut $crate::sys::miopen::miopenConvolutionDescriptor_t) {
                $crate::miopen::create_convolution(to)
            }

            fn miopenDestroyConvolutionDescriptor(of: $crate::sys::miopen::miopenConvolutionDescriptor_t) {
                $crate::miopen::destroy_convolution(of)
            }

            fn miopenInitConvolutionDescriptor(
                of: $crate::sys::miopen::miopenConvolutionDescriptor_t,
                mode: $crate::sys::miopen::miopenConvolutionMode_t, pad_h: i32, pad_w: i32, stride_h: i32,
                stride_w: i32, dilation_h: i32, dilation_w: i32,
            ) {
                let (padding, stride, dilation) =
                    ([pad_h, pad_w], [stride_h, stride_w], [dilation_h, dilation_w]);
                $crate::miopen::set_convolution(of, mode, &padding, &stride, &dilation)
            }

            fn miopenInitConvolutionNdDescriptor(
                of: $crate::sys::miopen::miopenConvolutionDescriptor_t, axes: i32, padding: *const i32,
                stride: *const i32, dilation: *const i32, mode: $crate::sys::miopen::miopenConvolutionMode_t,
            ) {
                let read = |numbers| $crate::miopen::read_axes(numbers, axes);
                $crate::miopen::set_convolution(of, mode, read(padding)?, read(stride)?, read(dilation)?)
            }

            fn miopenGetConvolutionDescriptor(
                of: $crate::sys::miopen::miopenConvolutionDescriptor_t,
                mode: *mut $crate::sys::miopen::miopenConvolutionMode_t, pad_h: *mut i32, pad_w: *mut i32,
                stride_h: *mut i32, stride_w: *mut i32, dilation_h: *mut i32, dilation_w: *mut i32,
            ) {
                let convolution = $crate::miopen::convolution(of)?;
                let ([top, left], [down, right], [high, wide]) =
                    (&convolution.padding[..], &convolution.stride[..], &convolution.dilation[..])
                else {
                    return Err($crate::miopen::BAD_PARAMETER);
                };
                $crate::miopen::put(mode, convolution.mode)?;
                for (to, value) in [
                    (pad_h, top), (pad_w, left), (stride_h, down), (stride_w, right), (dilation_h, high),
                    (dilation_w, wide),
                ] {
                    $crate::miopen::put_all(to, &[*value])?;
                }
                Ok(())
            }

            fn miopenGetConvolutionNdDescriptor(
                of: $crate::sys::miopen::miopenConvolutionDescriptor_t, capacity: i32, axes: *mut i32,
                padding: *mut i32, stride: *mut i32, dilation: *mut i32,
                mode: *mut $crate::sys::miopen::miopenConvolutionMode_t,
            ) {
                let convolution = $crate::miopen::convolution(of)?;
                $crate::miopen::put_all(axes, &[convolution.padding.len()])?;
                $crate::miopen::put(mode, convolution.mode)?;
                let capacity = usize::try_from(capacity).map_err(|_| $crate::miopen::BAD_PARAMETER)?;
                let count = convolution.padding.len().min(capacity);
                $crate::miopen::put_all(padding, &convolution.padding[..count])?;
                $crate::miopen::put_all(stride, &convolution.stride[..count])?;
                $crate::miopen::put_all(dilation, &convolution.dilation[..count])
            }

            fn miopenSetConvolutionGroupCount(
                of: $crate::sys::miopen::miopenConvolutionDescriptor_t, groups: i32,
            ) {
                let groups = usize::try_from(groups).ok().filter(|groups| *groups > 0);
                let groups = groups.ok_or($crate::miopen::BAD_PARAMETER)?;
                $crate::miopen::change_convolution(of, |convolution| convolution.groups = groups)
            }

            fn miopenGetConvolutionGroupCount(
                of: $crate::sys::miopen::miopenConvolutionDescriptor_t, groups: *mut i32,
            ) {
                $crate::miopen::put_all(groups, &[$crate::miopen::convolution(of)?.groups])
            }

            fn miopenGetConvolutionSpatialDim(
                of: $crate::sys::miopen::miopenConvolutionDescriptor_t, count: *mut i32,
            ) {
                $crate::miopen::put_all(count, &[$crate::miopen::convolution(of)?.padding.len()])
            }

            /// Attributes are kept and have no effect.
            fn miopenSetConvolutionAttribute(
                of: $crate::sys::miopen::miopenConvolutionDescriptor_t,
                attribute: $crate::sys::miopen::miopenConvolutionAttrib_t, value: i32,
            ) {
                $crate::miopen::change_convolution(of, |convolution| {
                    convolution.attributes.get_mut(attribute.0 as usize).map(|slot| *slot = value)
                })?
                .ok_or($crate::miopen::BAD_PARAMETER)
            }

            fn miopenGetConvolutionAttribute(
                of: $crate::sys::miopen::miopenConvolutionDescriptor_t,
                attribute: $crate::sys::miopen::miopenConvolutionAttrib_t, value: *mut i32,
            ) {
                let convolution = $crate::miopen::convolution(of)?;
                let found = convolution.attributes.get(attribute.0 as usize);
                $crate::miopen::put(value, *found.ok_or($crate::miopen::BAD_PARAMETER)?)
            }

            /// The mode is kept and has no effect, because there is no find database.
            fn miopenSetConvolutionFindMode(
                of: $crate::sys::miopen::miopenConvolutionDescriptor_t,
                mode: $crate::sys::miopen::miopenConvolutionFindMode_t,
            ) {
                $crate::miopen::change_convolution(of, |convolution| convolution.find_mode = mode)
            }

            fn miopenGetConvolutionFindMode(
                of: $crate::sys::miopen::miopenConvolutionDescriptor_t,
                mode: *mut $crate::sys::miopen::miopenConvolutionFindMode_t,
            ) {
                $crate::miopen::put(mode, $crate::miopen::convolution(of)?.find_mode)
            }

            fn miopenGetConvolutionForwardOutputDim(
                of: $crate::sys::miopen::miopenConvolutionDescriptor_t,
                x: $crate::sys::miopen::miopenTensorDescriptor_t, w: $crate::sys::miopen::miopenTensorDescriptor_t,
                n: *mut i32, c: *mut i32, h: *mut i32, width: *mut i32,
            ) {
                let (x, w) = ($crate::miopen::tensor(x)?, $crate::miopen::tensor(w)?);
                let lengths = $crate::miopen::convolution(of)?.output(&x, &w)?;
                if lengths.len() != 4 {
                    return Err($crate::miopen::BAD_PARAMETER);
                }
                for (to, length) in [n, c, h, width].into_iter().zip(lengths) {
                    $crate::miopen::put_all(to, &[length])?;
                }
                Ok(())
            }

            fn miopenGetConvolutionNdForwardOutputDim(
                of: $crate::sys::miopen::miopenConvolutionDescriptor_t,
                x: $crate::sys::miopen::miopenTensorDescriptor_t, w: $crate::sys::miopen::miopenTensorDescriptor_t,
                count: *mut i32, to: *mut i32,
            ) {
                let (x, w) = ($crate::miopen::tensor(x)?, $crate::miopen::tensor(w)?);
                let lengths = $crate::miopen::convolution(of)?.output(&x, &w)?;
                $crate::miopen::put_all(count, &[lengths.len()])?;
                $crate::miopen::put_all(to, &lengths)
            }

            fn miopenCreateActivationDescriptor(to: *mut $crate::sys::miopen::miopenActivationDescriptor_t) {
                $crate::miopen::create_activation(to)
            }

            fn miopenDestroyActivationDescriptor(of: $crate::sys::miopen::miopenActivationDescriptor_t) {
                $crate::miopen::destroy_activation(of)
            }

            fn miopenSetActivationDescriptor(
                of: $crate::sys::miopen::miopenActivationDescriptor_t,
                mode: $crate::sys::miopen::miopenActivationMode_t, alpha: f64, beta: f64, gamma: f64,
            ) {
                $crate::miopen::set_activation(of, $crate::miopen::Activation { mode, alpha, beta, gamma })
            }

            fn miopenGetActivationDescriptor(
                of: $crate::sys::miopen::miopenActivationDescriptor_t,
                mode: *mut $crate::sys::miopen::miopenActivationMode_t, alpha: *mut f64, beta: *mut f64,
                gamma: *mut f64,
            ) {
                let activation = $crate::miopen::activation(of)?;
                $crate::miopen::put(mode, activation.mode)?;
                $crate::miopen::put(alpha, activation.alpha)?;
                $crate::miopen::put(beta, activation.beta)?;
                $crate::miopen::put(gamma, activation.gamma)
            }
        }

        $crate::not_offered! { miopen, $crate::sys::miopen::miopenStatus_t, $crate::miopen::UNSUPPORTED;
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
    };
}
