//! rocBLAS.

mod gemm;
mod matrix;
mod vector;

use std::ptr;

use hipvit_sys::Rocblas;
use hipvit_sys::rocblas::{
    rocblas_datatype_ as Datatype, rocblas_gemm_algo_, rocblas_handle, rocblas_operation_ as Operation,
    rocblas_pointer_mode_, rocblas_status_ as Status,
};

use crate::gpu::{Buffer, Kind, Shape, compare, hip, numbers, ok, provider, refused, synchronize};

fn blas() -> &'static Rocblas {
    provider().rocblas().expect("rocBLAS")
}

struct Handle(rocblas_handle);

impl Handle {
    fn new() -> Self {
        let mut handle = ptr::null_mut();
        ok(unsafe { blas().rocblas_create_handle(&mut handle) });
        Self(handle)
    }

    fn scalars_on_device(self) -> Self {
        let mode = rocblas_pointer_mode_::rocblas_pointer_mode_device;
        ok(unsafe { blas().rocblas_set_pointer_mode(self.0, mode) });
        self
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        ok(unsafe { blas().rocblas_destroy_handle(self.0) });
    }
}

fn datatype(kind: Kind) -> Datatype {
    match kind {
        Kind::F16 => Datatype::rocblas_datatype_f16_r,
        Kind::Bf16 => Datatype::rocblas_datatype_bf16_r,
        Kind::F32 => Datatype::rocblas_datatype_f32_r,
        Kind::F64 => Datatype::rocblas_datatype_f64_r,
        Kind::I8 => Datatype::rocblas_datatype_i8_r,
        Kind::I32 => Datatype::rocblas_datatype_i32_r,
    }
}

fn operation(transposed: bool) -> Operation {
    if transposed {
        Operation::rocblas_operation_transpose
    } else {
        Operation::rocblas_operation_none
    }
}
