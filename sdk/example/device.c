/* The smallest device: host memory, streams that are always done, events, and two ops. A real one has
 * all ops of assay_ops; here supports() says which are missing, so a daemon refuses it in words. */
#include "abi/plugin.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define ALIGNMENT 256u

typedef struct example_device {
    assay_device_ref ref;
} example_device;

static assay_status fail(assay_error *err, assay_code code, const char *words) {
    if (err != NULL) {
        err->code = code;
        snprintf(err->text, sizeof err->text, "%s", words);
    }
    return code;
}

/* ---- ops --------------------------------------------------------------------------------- */

static assay_status ops_supports(void *self, int32_t op, int32_t dtype, assay_error *why) {
    (void)self;
    if (op != ASSAY_OP_ADD && op != ASSAY_OP_SCALE)
        return fail(why, ASSAY_UNSUPPORTED, "the example device has add and scale only");
    if (dtype != ASSAY_F32) return fail(why, ASSAY_UNSUPPORTED, "activations: only f32");
    return ASSAY_OK;
}

/* f32 of rank 2; a device for use takes any rank. */
static bool is_matrix(const assay_tensor *t, const assay_tensor *like) {
    return t->dtype == ASSAY_F32 && t->rank == 2 && t->stride[1] == 1 &&
           t->shape[0] == like->shape[0] && t->shape[1] == like->shape[1];
}

static assay_status ops_add(void *self, const assay_tensor *a, const assay_tensor *b, float scale,
                            const assay_tensor *out, const assay_stream *s) {
    (void)self, (void)s;
    if (!is_matrix(a, out) || !is_matrix(b, out) || !is_matrix(out, out)) return ASSAY_INVALID;
    for (int64_t row = 0; row < out->shape[0]; ++row) {
        const float *u = (const float *)a->data + row * a->stride[0];
        const float *v = (const float *)b->data + row * b->stride[0];
        float *to = (float *)out->data + row * out->stride[0];
        for (int64_t i = 0; i < out->shape[1]; ++i) to[i] = u[i] + scale * v[i];
    }
    return ASSAY_OK;
}

static assay_status ops_scale(void *self, const assay_tensor *x, float factor,
                              const assay_tensor *out, const assay_stream *s) {
    (void)self, (void)s;
    if (!is_matrix(x, out) || !is_matrix(out, out)) return ASSAY_INVALID;
    for (int64_t row = 0; row < out->shape[0]; ++row) {
        const float *from = (const float *)x->data + row * x->stride[0];
        float *to = (float *)out->data + row * out->stride[0];
        for (int64_t i = 0; i < out->shape[1]; ++i) to[i] = from[i] * factor;
    }
    return ASSAY_OK;
}

static const assay_ops ops = {
    .size = sizeof ops, .supports = ops_supports, .add = ops_add, .scale = ops_scale};

/* ---- the device -------------------------------------------------------------------------- */

static assay_status device_count(int32_t *out, assay_error *err) {
    (void)err;
    *out = 1;
    return ASSAY_OK;
}

static assay_status device_open(const assay_host *host, const assay_device_config *config,
                                void **self, assay_device_ref *ref, assay_error *err) {
    (void)host;
    if (config->ordinal != 0) return fail(err, ASSAY_UNSUPPORTED, "there is device 0 only");
    if (config->num_options != 0) return fail(err, ASSAY_UNSUPPORTED, "no option is known");
    example_device *device = calloc(1, sizeof *device);
    if (device == NULL) return fail(err, ASSAY_NO_MEMORY, "out of memory");
    device->ref.size = sizeof device->ref;
    device->ref.kind = "cpu";
    device->ref.num_units = 1;
    strcpy(device->ref.name, "example");
    *ref = device->ref;
    *self = device;
    return ASSAY_OK;
}

static void device_close(void *self) { free(self); }

static assay_status device_alloc(void *self, int32_t space, uint64_t bytes, void **out,
                                 assay_error *err) {
    (void)self, (void)space;
    *out = bytes <= UINT64_MAX - ALIGNMENT
               ? aligned_alloc(ALIGNMENT, (bytes / ALIGNMENT + 1) * ALIGNMENT)
               : NULL;
    return *out != NULL ? ASSAY_OK : fail(err, ASSAY_NO_MEMORY, "out of memory");
}

static void device_free(void *self, int32_t space, void *ptr) {
    (void)self, (void)space;
    free(ptr);
}

static assay_status device_memory(void *self, uint64_t *free_bytes, uint64_t *total_bytes) {
    (void)self;
    *free_bytes = *total_bytes = (uint64_t)1 << 30; /* a promise, as an example needs no more */
    return ASSAY_OK;
}

static assay_status stream_create(void *self, int32_t priority, const assay_lanes *lanes,
                                  assay_stream *out, assay_error *err) {
    (void)priority, (void)err;
    out->device = &((example_device *)self)->ref;
    out->native = NULL;
    out->lanes = lanes;
    return ASSAY_OK;
}

static void stream_destroy(void *self, assay_stream *s) {
    (void)self;
    memset(s, 0, sizeof *s);
}

static assay_status stream_sync(void *self, const assay_stream *s, assay_error *err) {
    (void)self, (void)s, (void)err;
    return ASSAY_OK; /* work is done when the call that asks for it returns */
}

static assay_status event_create(void *self, void **event, assay_error *err) {
    (void)self;
    *event = calloc(1, sizeof(struct timespec));
    return *event != NULL ? ASSAY_OK : fail(err, ASSAY_NO_MEMORY, "out of memory");
}

static void event_destroy(void *self, void *event) {
    (void)self;
    free(event);
}

static assay_status event_record(void *self, void *event, const assay_stream *s) {
    (void)self, (void)s;
    timespec_get(event, TIME_UTC);
    return ASSAY_OK;
}

static assay_status event_wait(void *self, const assay_stream *s, void *event) {
    (void)self, (void)s, (void)event;
    return ASSAY_OK;
}

static assay_status event_done(void *self, void *event, bool *done, assay_error *err) {
    (void)self, (void)event, (void)err;
    *done = true;
    return ASSAY_OK;
}

static assay_status event_sync(void *self, void *event, int64_t timeout_us, assay_error *err) {
    (void)self, (void)event, (void)timeout_us, (void)err;
    return ASSAY_OK;
}

static assay_status event_elapsed_us(void *self, void *from, void *to, double *us) {
    const struct timespec *a = from, *b = to;
    (void)self;
    *us = (double)(b->tv_sec - a->tv_sec) * 1e6 + (double)(b->tv_nsec - a->tv_nsec) / 1e3;
    return ASSAY_OK;
}

static assay_status device_copy(void *self, void *dst, const void *src, uint64_t bytes,
                                const assay_stream *s) {
    (void)self, (void)s;
    if (bytes != 0) memcpy(dst, src, bytes);
    return ASSAY_OK;
}

static assay_status device_fill(void *self, void *dst, int32_t byte, uint64_t bytes,
                                const assay_stream *s) {
    (void)self, (void)s;
    if (bytes != 0) memset(dst, byte, bytes);
    return ASSAY_OK;
}

static const assay_device device = {
    .size = sizeof device,
    .kind = "cpu",
    .count = device_count,
    .open = device_open,
    .close = device_close,
    .alloc = device_alloc,
    .free = device_free,
    .memory = device_memory,
    .host_visible = true,
    .stream_create = stream_create,
    .stream_destroy = stream_destroy,
    .stream_sync = stream_sync,
    .event_create = event_create,
    .event_destroy = event_destroy,
    .event_record = event_record,
    .event_wait = event_wait,
    .event_done = event_done,
    .event_sync = event_sync,
    .event_elapsed_us = event_elapsed_us,
    .copy = device_copy,
    .fill = device_fill, /* graphs: null, the engine launches op by op */
    .ops = &ops,
    .collectives_absent = "an example has one rank",
};

static assay_status module_open(const assay_host *host, assay_error *err) {
    (void)host, (void)err;
    return ASSAY_OK;
}

static const void *module_query(const char *interface_id) {
    return strcmp(interface_id, ASSAY_KIND_DEVICE) == 0 ? &device : NULL;
}

static void module_close(void) {}

const assay_module assay_module_entry = {
    .magic = ASSAY_MAGIC,
    .size = sizeof(assay_module),
    .abi_major = ASSAY_ABI_MAJOR,
    .abi_minor = ASSAY_ABI_MINOR,
    .id = "example-device",
    .version = "0.1.0",
    .vendor = "example",
    .build = "C11",
    .kinds = ASSAY_KIND_DEVICE,
    .open = module_open,
    .query = module_query,
    .close = module_close,
};
