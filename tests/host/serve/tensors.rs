//! ONNX models that take tensors by name, over HTTP and gRPC.

use hipvit_serve::ModelSource;
use hipvit_serve::proto::ModelInferRequest;
use hipvit_serve::proto::model_infer_request::InferInputTensor;
use serde_json::json;

use crate::support::onnx::{Golden, views};
use crate::support::server::grpc::{block_on, client};
use crate::support::server::{MODEL, Running, floats, options};
use hipvit::{Device, Session};

fn running(golden: &Golden) -> Running {
    let mut options = options();
    options.models = vec![ModelSource::new(MODEL, &golden.model)];
    Running::new(options)
}

/// Token ids and masks in JSON, and the bits of the session.
#[test]
fn tensors_are_named_as_in_the_file() {
    let golden = Golden::read("clip_text");
    let running = running(&golden);
    let model = running.get(&format!("/v2/models/{MODEL}")).json();
    assert_eq!(
        model["inputs"],
        json!([
            {"name": "input_ids", "datatype": "INT64", "shape": [-1, 16]},
            {"name": "attention_mask", "datatype": "INT64", "shape": [-1, 16]},
        ])
    );
    let inputs = golden.inputs();
    let session = Session::builder().device(Device::Cpu).threads(1);
    let expected = session
        .load(&golden.model)
        .unwrap()
        .run_tensors(views(&inputs))
        .unwrap();
    let tensor = |(name, array): &(String, hipvit::TensorArray)| {
        let hipvit::TensorArray::I64(array) = array else {
            panic!("{array:?}");
        };
        let data: Vec<i64> = array.iter().copied().collect();
        json!({"name": name, "datatype": "INT64", "shape": array.shape(), "data": data})
    };
    let body = json!({"inputs": inputs.iter().map(tensor).collect::<Vec<_>>(), "outputs": [{"name": "text_embeds"}]});
    let response = running.infer(&body);
    assert_eq!(response.status, 200, "{}", response.text());
    let response = response.json();
    assert_eq!(response["outputs"].as_array().unwrap().len(), 1);
    assert_eq!(response["outputs"][0]["shape"], json!([2, 16]));
    let values: Vec<f32> = expected
        .get("text_embeds")
        .unwrap()
        .as_f32()
        .unwrap()
        .iter()
        .copied()
        .collect();
    assert_eq!(floats(&response, "text_embeds"), values);

    for (message, body) in [
        (
            "`attention_mask` is missing",
            json!({"inputs": [tensor(inputs.iter().find(|(name, _)| name == "input_ids").unwrap())]}),
        ),
        (
            "output `x`: the model has no such output",
            json!({"inputs": [], "outputs": [{"name": "x"}]}),
        ),
        (
            "input `input_ids`: shape [3] does not have 1 elements",
            json!({"inputs": [
            {"name": "input_ids", "datatype": "INT64", "shape": [3], "data": [1]}]}),
        ),
    ] {
        let response = running.infer(&body);
        assert_eq!(response.status, 400, "{}", response.text());
        assert!(response.text().contains(message), "{}", response.text());
    }
}

#[test]
fn grpc_sends_raw_tensors() {
    let golden = Golden::read("vit");
    let running = running(&golden);
    let array = golden.floats("input.input");
    let request = ModelInferRequest {
        model_name: MODEL.into(),
        inputs: vec![InferInputTensor {
            name: "input".into(),
            datatype: "FP32".into(),
            shape: array.shape().iter().map(|&extent| extent as i64).collect(),
            ..InferInputTensor::default()
        }],
        raw_input_contents: vec![
            array
                .iter()
                .flat_map(|x| x.to_le_bytes())
                .collect::<Vec<u8>>()
                .into(),
        ],
        ..ModelInferRequest::default()
    };
    let expected = golden.floats("output.output");
    let largest = expected.iter().fold(0.0_f32, |largest, x| largest.max(x.abs()));
    block_on(async {
        let mut client = client(running.address).await;
        let response = client.model_infer(request).await.unwrap().into_inner();
        assert_eq!(
            (
                response.outputs[0].name.as_str(),
                response.outputs[0].datatype.as_str()
            ),
            ("output", "FP32")
        );
        let (values, _) = response.raw_output_contents[0].as_chunks();
        assert_eq!(values.len(), expected.len());
        for (&value, expected) in values.iter().zip(&expected) {
            let value = f32::from_le_bytes(value);
            assert!(
                (value - expected).abs() <= 1e-4 * largest,
                "{value}, expected {expected}"
            );
        }
    });
}
