/* Layers of convolutions of 3 x 3, each with pooling of 2 x 2 and a ReLU behind it.

   Forth all images of a batch go together, h[pixels][channels][P]: a vector is a number of several images, so that every
   sum has whole vectors whatever the number of channels is, and no pixel outside an image is ever multiplied. Back each
   image goes by itself, in a frame of one pixel, image[side + 2][side + 2][channels]: of every four numbers that were
   pooled one gets a gradient, and of these dropout and ReLU leave some; nothing is computed for the others. */

#define TAPS 9
#define SPAN 3 /* pixels that a kernel covers in a row */
#define NEAR 24576 /* bytes of what is read that stay in the innermost cache beside weights and sums */
#if VL == 16 || defined(__aarch64__)
#define WIDE 4 /* vectors in a row of a tile of five rows: its sums have to stay in registers */
#else
#define WIDE 2
#endif

typedef struct {
    i64 side, inner, width; /* pixels in a row and channels of what is read, and the channels that come out */
} Shape;

typedef struct {
    float slope; /* the gradient at one number that was pooled */
    int32_t at;  /* where in its frame what that was computed from begins */
} Pull;

INLINE i64 halved(i64 side) { return side / 2; }
/* Numbers of an image in its frame; vectors may read beyond the last pixel. */
INLINE i64 framed(i64 side, i64 channels) { return filled((side + 2) * (side + 2) * channels + VL); }
/* Numbers of a row of a kernel, in whole vectors. */
INLINE i64 span(i64 inner) { return filled(SPAN * inner); }
INLINE i64 place(i64 side, i64 channels, i64 y, i64 x) { return ((y + 1) * (side + 2) + x + 1) * channels; }

/* ---- in frames -------------------------------------------------------------------------------------------------- */

/* An image [channels][side][side], of bytes or floats, into its frame, scaled: divided by its peak, less the mean of the
   channel, divided by its spread. */
static void develop(i64 side, i64 channels, int bytes, const float *scaling, const void *image, float *to) {
    for (i64 c = 0; c < channels; c++)
        for (i64 y = 0; y < side; y++)
            for (i64 x = 0; x < side; x++) {
                i64 at = (c * side + y) * side + x;
                float v = bytes ? (float)((const uint8_t *)image)[at] : ((const float *)image)[at];
                to[place(side, channels, y, x) + c] = (v / scaling[0] - scaling[1 + c]) / scaling[1 + channels + c];
            }
}

/* All images of h[pixels][channels][P], each into its frame. */
static void frame(i64 side, i64 channels, i64 P, i64 B, const float *h, float *images, i64 apart) {
    for (i64 y = 0; y < side; y++)
        for (i64 x = 0; x < side; x++)
            turn(channels, B, h + (y * side + x) * channels * P, P, images + place(side, channels, y, x), apart);
}

/* The way back. */
static void unframe(i64 side, i64 channels, i64 P, i64 B, const float *images, i64 apart, float *h) {
    for (i64 y = 0; y < side; y++)
        turn(B, side * channels, images + place(side, channels, y, 0), apart, h + y * side * channels * P, P);
}

/* ---- forth ------------------------------------------------------------------------------------------------------ */

/* Kernels [out][planes][3][3] as [9][out][inner], of the first planes. */
static void by_tap(const Shape *shape, i64 planes, const float *weight, float *to) {
    for (i64 o = 0; o < shape->width; o++)
        for (i64 i = 0; i < shape->inner; i++)
            for (i64 t = 0; t < TAPS; t++)
                to[(t * shape->width + o) * shape->inner + i] = weight[(o * planes + i) * TAPS + t];
}

/* Some rows of z[out][P], from some pixels from[taps][inner][P] and their weights of[taps][out][inner]; they begin with
   a bias, or with what is there. */
INLINE void reach(const int rows, const int wide, i64 taps, const float *const *from, const float *const *of, i64 i,
                  i64 j, i64 inner, i64 P, float *z, const float *bias) {
    vec held[5][WIDE];
    for (int p = 0; p < rows; p++)
        for (int q = 0; q < wide; q++) held[p][q] = bias ? all(bias[i + p]) : load(z + (i + p) * P + j + q * VL);
    for (i64 t = 0; t < taps; t++) {
        const float *h = from[t] + j, *weight = of[t] + i * inner;
        for (i64 k = 0; k < inner; k++) {
            vec right[WIDE];
            for (int q = 0; q < wide; q++) right[q] = load(h + k * P + q * VL);
#pragma GCC unroll 5
            for (int p = 0; p < rows; p++) {
                vec left = all(weight[p * inner + k]);
                for (int q = 0; q < wide; q++) held[p][q] += left * right[q];
            }
        }
    }
    for (int p = 0; p < rows; p++)
        for (int q = 0; q < wide; q++) store(z + (i + p) * P + j + q * VL, held[p][q]);
}

#define REACH(wide)                                                                                                    \
    for (i = 0; i + 5 <= shape->width; i += 5) reach(5, wide, some, from, of, i, j, shape->inner, P, z, bias);         \
    for (; i + 2 <= shape->width; i += 2) reach(2, wide, some, from, of, i, j, shape->inner, P, z, bias);              \
    for (; i < shape->width; i++) reach(1, wide, some, from, of, i, j, shape->inner, P, z, bias)

/* What the kernels of[9][out][inner] make of the pixels around one of h[side * side][inner][P]: z[out][P]. */
APART void pixel(const Shape *shape, i64 P, const float *kernels, const float *bias, const float *h, i64 y, i64 x,
                 float *z) {
    const float *every[TAPS], *weights[TAPS];
    i64 taps = 0, i, size = shape->inner * P, group = NEAR / (4 * size) < 1 ? 1 : NEAR / (4 * size);
    for (i64 t = 0; t < TAPS; t++) {
        i64 v = y + t / SPAN - 1, u = x + t % SPAN - 1;
        if (v < 0 || u < 0 || v >= shape->side || u >= shape->side) continue;
        every[taps] = h + (v * shape->side + u) * size;
        weights[taps++] = kernels + t * shape->width * shape->inner;
    }
    for (i64 t = 0; t < taps; t += group, bias = 0) {
        const float *const *from = every + t, *const *of = weights + t;
        i64 some = taps - t < group ? taps - t : group, j = 0;
#if WIDE == 4
        for (; j + 4 * VL <= P; j += 4 * VL) { REACH(4); }
#endif
        for (; j + 2 * VL <= P; j += 2 * VL) { REACH(2); }
        for (; j < P; j += VL) { REACH(1); }
    }
}

/* The largest of four numbers in a row, and which it is; what is no number is the largest. */
INLINE vec largest(const float *z, i64 apart, ivec *which) {
    vec best = load(z);
    *which = (ivec){0};
    for (int at = 1; at < 4; at++) {
        vec other = load(z + at * apart);
        ivec more = ~(other <= best) & (best == best);
        best = (vec)((more & (ivec)other) | (~more & (ivec)best));
        *which = (more & at) | (~more & *which);
    }
    return best;
}

/* A mask's factors of images from the j-th on: ones behind the batch. */
INLINE vec by_image(const float *mask, i64 apart, i64 B, i64 j) {
    vec found = all(1);
    for (i64 b = j; b < j + VL && b < B; b++) found[b - j] = mask[b * apart];
    return found;
}

/* One layer of all images of a batch, from h[pixels][inner][P] to to[pixels][out][P], or added to that, times `share` [P]
   if it is there. Into `images`, if they are wanted, what comes out of each before it is shared, in frames that are
   `apart`: the last two bits of a number say which of the four was the largest; zero: no gradient comes back. */
static void layer(const Shape *shape, i64 P, i64 B, const float *kernels, const float *bias, const float *h, Drop drop,
                  const float *share, int more, float *z, float *to, float *images, i64 apart) {
    i64 C = shape->width, side = halved(shape->side);
    float *stage = z + 4 * C * P;
    for (i64 w = 0; w < side * side; w++) {
        i64 y = w / side, x = w % side;
        for (i64 at = 0; at < 4; at++) pixel(shape, P, kernels, bias, h, 2 * y + at / 2, 2 * x + at % 2, z + at * C * P);
        for (i64 o = 0; o < C; o++)
            for (i64 j = 0; j < P; j += VL) {
                ivec which;
                vec v = largest(z + o * P + j, C * P, &which);
                v = choose(~(v < 0), v);
                if (drop.bits) v = choose(set(drop.bits + (w * C + o) * drop.stride, j), v * drop.scale);
                if (drop.mask) v *= by_image(drop.mask + o * side * side + w, drop.stride, B, j);
                if (images) store(stage + o * P + j, choose(v != 0, (vec)(((ivec)v & ~3) | which)));
                if (share) v *= load(share + j);
                float *there = to + (w * C + o) * P + j;
                store(there, more ? load(there) + v : v);
            }
        if (images) turn(C, B, stage, P, images + place(side, C, y, x), apart);
    }
}

/* ---- back ------------------------------------------------------------------------------------------------------- */

/* Kernels [out][planes][3][3] as [out][3][span], with zeros behind a row's numbers. */
static void by_row(const Shape *shape, i64 planes, const float *weight, float *to) {
    i64 R = span(shape->inner);
    memset(to, 0, 4 * shape->width * SPAN * R);
    for (i64 o = 0; o < shape->width; o++)
        for (i64 t = 0; t < TAPS; t++)
            for (i64 i = 0; i < shape->inner; i++)
                to[(o * SPAN + t / SPAN) * R + t % SPAN * shape->inner + i] = weight[(o * planes + i) * TAPS + t];
}

/* Adds sums [out][3][span] to gradients [out][planes][3][3]. */
static void from_rows(const Shape *shape, i64 planes, const float *sums, float *to) {
    i64 R = span(shape->inner);
    for (i64 o = 0; o < shape->width; o++)
        for (i64 i = 0; i < shape->inner; i++)
            for (i64 t = 0; t < TAPS; t++)
                to[(o * planes + i) * TAPS + t] += sums[(o * SPAN + t / SPAN) * R + t % SPAN * shape->inner + i];
}

/* What a module that gave `out` gains if there is more of it, by the gradient at what it is mixed into. */
static float gained(const Shape *shape, const float *out, const float *slope) {
    i64 C = shape->width, side = halved(shape->side);
    float total = 0;
    for (i64 y = 0; y < side; y++) {
        const float *one = out + place(side, C, y, 0), *other = slope + place(side, C, y, 0);
        vec held = {0};
        i64 i = 0;
        for (; i + VL <= side * C; i += VL) held += load(one + i) * load(other + i);
        for (; i < side * C; i++) total += one[i] * other[i];
        total += sum(held);
    }
    return total;
}

/* What comes back to the numbers of one image that were pooled, through a share of it and dropout: of each channel,
   pulls [out][pixels] and how many. */
static void pulled(const Shape *shape, const float *out, const float *slope, float share, float scale,
                   const float *mask, Pull *pulls, int32_t *count) {
    i64 C = shape->width, side = halved(shape->side), room = side * side, line = (shape->side + 2) * shape->inner;
    const int32_t moved[4] = {0, (int32_t)shape->inner, (int32_t)line, (int32_t)(line + shape->inner)};
    memset(count, 0, sizeof *count * C);
    for (i64 w = 0; w < room; w++) {
        i64 y = w / side, x = w % side, here = place(side, C, y, x);
        int32_t from = (int32_t)(2 * y * line + 2 * x * shape->inner);
        for (i64 o = 0; o < C; o++) {
            int32_t bits;
            memcpy(&bits, out + here + o, 4);
            float v = slope[here + o] * share * (mask ? mask[o * room + w] : scale);
            pulls[o * room + count[o]] = (Pull){v, from + moved[bits & 3]};
            count[o] += (bits != 0) & (v != 0);
        }
    }
}

/* Some vectors of the three rows of sums that are the gradient of one channel's kernels. */
INLINE void gather(const int wide, const Pull *pulls, i64 count, const float *image, i64 line, float *sums, i64 R) {
    vec held[SPAN][5];
    for (int p = 0; p < SPAN; p++)
        for (int q = 0; q < wide; q++) held[p][q] = load(sums + p * R + q * VL);
    for (i64 n = 0; n < count; n++) {
        const float *from = image + pulls[n].at;
        vec slope = all(pulls[n].slope);
        for (int p = 0; p < SPAN; p++)
            for (int q = 0; q < wide; q++) held[p][q] += slope * load(from + p * line + q * VL);
    }
    for (int p = 0; p < SPAN; p++)
        for (int q = 0; q < wide; q++) store(sums + p * R + q * VL, held[p][q]);
}

/* Adds one image's gradients of kernels, sums [out][3][span], and of biases [out]. */
APART void learn_kernels(const Shape *shape, const Pull *pulls, const int32_t *count, const float *image, float *sums,
                         float *bias) {
    i64 R = span(shape->inner), room = halved(shape->side) * halved(shape->side), line = (shape->side + 2) * shape->inner;
    for (i64 o = 0; o < shape->width; o++) {
        const Pull *own = pulls + o * room;
        float *to = sums + o * SPAN * R, total = 0;
        if (!count[o]) continue;
        for (i64 n = 0; n < count[o]; n++) total += own[n].slope;
        bias[o] += total;
        i64 j = 0;
        for (; j + 5 * VL <= R; j += 5 * VL) gather(5, own, count[o], image + j, line, to + j, R);
        for (; j + 2 * VL <= R; j += 2 * VL) gather(2, own, count[o], image + j, line, to + j, R);
        for (; j < R; j += VL) gather(1, own, count[o], image + j, line, to + j, R);
    }
}

/* Adds the gradient at what one image was computed from, in its frame, by kernels [out][3][span]. */
APART void give_back(const Shape *shape, const Pull *pulls, const int32_t *count, const float *kernels, float *image) {
    i64 R = span(shape->inner), room = halved(shape->side) * halved(shape->side), line = (shape->side + 2) * shape->inner;
    for (i64 o = 0; o < shape->width; o++) {
        const float *own = kernels + o * SPAN * R;
        for (i64 n = 0; n < count[o]; n++) {
            float *to = image + pulls[o * room + n].at;
            vec slope = all(pulls[o * room + n].slope);
            for (int p = 0; p < SPAN; p++)
                for (i64 j = 0; j < R; j += VL)
                    store(to + p * line + j, load(to + p * line + j) + slope * load(own + p * R + j));
        }
    }
}
