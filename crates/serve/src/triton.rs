//! Triton's model configuration and statistics, as messages and as JSON.

use serde_json::{Map, Value, json};

use super::options::ServerOptions;
use super::proto::model_instance_group::Kind;
use super::proto::model_version_policy::{All, PolicyChoice};
use super::proto::{
    DataType, InferBatchStatistics, InferStatistics, ModelConfig, ModelDynamicBatching, ModelInput,
    ModelInstanceGroup, ModelOutput, ModelStatistics, ModelTransactionPolicy, ModelVersionPolicy,
    StatisticDuration,
};
use super::protocol::{Datatype, TensorMetadata};
use super::repository::Model;
use super::statistics::{BatchTimes, Counts, InferTimes, TimeSum};

/// Priorities as Triton counts them: 1 is interactive, and 2 is bulk.
const PRIORITY_LEVELS: u64 = 2;

fn data_type(datatype: Datatype) -> DataType {
    match datatype {
        Datatype::Bool => DataType::TypeBool,
        Datatype::Uint8 => DataType::TypeUint8,
        Datatype::Uint16 => DataType::TypeUint16,
        Datatype::Uint32 => DataType::TypeUint32,
        Datatype::Uint64 => DataType::TypeUint64,
        Datatype::Int8 => DataType::TypeInt8,
        Datatype::Int16 => DataType::TypeInt16,
        Datatype::Int32 => DataType::TypeInt32,
        Datatype::Int64 => DataType::TypeInt64,
        Datatype::Fp16 => DataType::TypeFp16,
        Datatype::Bf16 => DataType::TypeBf16,
        Datatype::Fp32 => DataType::TypeFp32,
        Datatype::Fp64 => DataType::TypeFp64,
        Datatype::Bytes => DataType::TypeString,
    }
}

/// Returns the shape without the batch dimension, which the configuration leaves out. It has at least one
/// dimension.
fn dims(tensor: &TensorMetadata) -> Vec<i64> {
    match tensor.shape.get(1..) {
        Some(dims) if !dims.is_empty() => dims.to_vec(),
        _ => vec![1],
    }
}

/// Returns the configuration of a model.
pub(super) fn configuration(model: &Model, options: &ServerOptions) -> ModelConfig {
    let small = |number: usize| i32::try_from(number).unwrap_or(i32::MAX);
    let inputs = model.input_metadata();
    // A request about images has one of several inputs.
    let optional = model.named.is_none() && inputs.len() > 1;
    let input = |tensor: &TensorMetadata| ModelInput {
        name: tensor.name.to_string(),
        data_type: data_type(tensor.datatype).into(),
        dims: dims(tensor),
        optional,
    };
    let output = |tensor: &TensorMetadata| ModelOutput {
        name: tensor.name.to_string(),
        data_type: data_type(tensor.datatype).into(),
        dims: dims(tensor),
    };
    let batching = ModelDynamicBatching {
        preferred_batch_size: vec![small(options.max_batch)],
        max_queue_delay_microseconds: u64::try_from(options.max_delay.as_micros()).unwrap_or(u64::MAX),
        preserve_ordering: false,
        priority_levels: PRIORITY_LEVELS,
        default_priority_level: 1,
    };
    ModelConfig {
        name: model.name.clone(),
        platform: model.platform.clone(),
        backend: "hipvit".into(),
        version_policy: Some(ModelVersionPolicy {
            policy_choice: Some(PolicyChoice::All(All {})),
        }),
        max_batch_size: small(options.max_batch),
        input: inputs.iter().map(input).collect(),
        output: model.output_metadata().iter().map(output).collect(),
        instance_group: instance_groups(model),
        dynamic_batching: Some(batching),
        model_transaction_policy: Some(ModelTransactionPolicy { decoupled: false }),
        ..ModelConfig::default()
    }
}

/// Returns a group for each device, or for each set of GPUs that share a model.
fn instance_groups(model: &Model) -> Vec<ModelInstanceGroup> {
    let mut groups: Vec<(String, ModelInstanceGroup)> = Vec::new();
    for device in model.devices() {
        if let Some((_, group)) = groups.iter_mut().find(|(known, _)| *known == device) {
            group.count += 1;
            continue;
        }
        let gpus = device.strip_prefix("hip:");
        let numbers = gpus.map(|gpus| gpus.split(',').filter_map(|gpu| gpu.parse().ok()).collect());
        let group = ModelInstanceGroup {
            name: format!("{}_{}", model.name, groups.len()),
            count: 1,
            gpus: numbers.unwrap_or_default(),
            kind: if gpus.is_some() { Kind::Gpu } else { Kind::Cpu }.into(),
        };
        groups.push((device, group));
    }
    groups.into_iter().map(|(_, group)| group).collect()
}

/// Writes a configuration with the keys of Triton's JSON.
pub(super) fn configuration_json(config: &ModelConfig) -> Value {
    let type_name = |number: i32| DataType::try_from(number).unwrap_or_default().as_str_name();
    let input = |input: &ModelInput| {
        json!({
            "name": input.name,
            "data_type": type_name(input.data_type),
            "format": "FORMAT_NONE",
            "dims": input.dims,
            "is_shape_tensor": false,
            "allow_ragged_batch": false,
            "optional": input.optional,
        })
    };
    let output = |output: &ModelOutput| {
        json!({
            "name": output.name,
            "data_type": type_name(output.data_type),
            "dims": output.dims,
            "label_filename": "",
            "is_shape_tensor": false,
        })
    };
    let group = |group: &ModelInstanceGroup| {
        json!({
            "name": group.name,
            "kind": Kind::try_from(group.kind).unwrap_or_default().as_str_name(),
            "count": group.count,
            "gpus": group.gpus,
        })
    };
    let batching = config.dynamic_batching.as_ref().map(|batching| {
        json!({
            "preferred_batch_size": batching.preferred_batch_size,
            "max_queue_delay_microseconds": batching.max_queue_delay_microseconds,
            "preserve_ordering": batching.preserve_ordering,
            "priority_levels": batching.priority_levels,
            "default_priority_level": batching.default_priority_level,
        })
    });
    json!({
        "name": config.name,
        "platform": config.platform,
        "backend": config.backend,
        "version_policy": { "all": {} },
        "max_batch_size": config.max_batch_size,
        "input": config.input.iter().map(input).collect::<Vec<_>>(),
        "output": config.output.iter().map(output).collect::<Vec<_>>(),
        "batch_input": [],
        "batch_output": [],
        "optimization": {},
        "dynamic_batching": batching,
        "instance_group": config.instance_group.iter().map(group).collect::<Vec<_>>(),
        "default_model_filename": "",
        "cc_model_filenames": {},
        "metric_tags": {},
        "parameters": {},
        "model_warmup": [],
        "model_transaction_policy": { "decoupled": false },
    })
}

fn duration(sum: TimeSum) -> Option<StatisticDuration> {
    Some(StatisticDuration {
        count: sum.count,
        ns: sum.ns,
    })
}

/// Returns the statistics of a model as a message.
pub(super) fn statistics(model: &Model) -> ModelStatistics {
    let Counts {
        last_inference,
        inferences,
        executions,
        times,
        batches,
    } = model.statistics.counts();
    let InferTimes {
        success,
        fail,
        queue,
        compute_input,
        compute_infer,
        compute_output,
        cache_hit,
        cache_miss,
    } = times;
    let batch = |(size, times): (usize, BatchTimes)| InferBatchStatistics {
        batch_size: size as u64,
        compute_input: duration(times.compute_input),
        compute_infer: duration(times.compute_infer),
        compute_output: duration(times.compute_output),
    };
    ModelStatistics {
        name: model.name.clone(),
        version: model.version.to_string(),
        last_inference,
        inference_count: inferences,
        execution_count: executions,
        inference_stats: Some(InferStatistics {
            success: duration(success),
            fail: duration(fail),
            queue: duration(queue),
            compute_input: duration(compute_input),
            compute_infer: duration(compute_infer),
            compute_output: duration(compute_output),
            cache_hit: duration(cache_hit),
            cache_miss: duration(cache_miss),
        }),
        batch_stats: batches.into_iter().map(batch).collect(),
    }
}

/// Returns the statistics of a model as JSON.
pub(super) fn statistics_json(model: &Model) -> Value {
    let counts = model.statistics.counts();
    let batch = |(size, times): (&usize, &BatchTimes)| {
        let mut batch = Map::new();
        batch.insert("batch_size".into(), json!(size));
        batch.insert("compute_input".into(), json!(times.compute_input));
        batch.insert("compute_infer".into(), json!(times.compute_infer));
        batch.insert("compute_output".into(), json!(times.compute_output));
        Value::Object(batch)
    };
    json!({
        "name": model.name,
        "version": model.version.to_string(),
        "last_inference": counts.last_inference,
        "inference_count": counts.inferences,
        "execution_count": counts.executions,
        "inference_stats": counts.times,
        "batch_stats": counts.batches.iter().map(batch).collect::<Vec<_>>(),
    })
}
