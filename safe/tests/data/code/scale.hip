extern "C" __attribute__((global)) void scale(const float *from, float *to) {
    const int i = __builtin_amdgcn_workitem_id_x();
    to[i] = 2 * from[i];
}
