__global__ void read(cudaTextureObject_t image, float* out) { out[0] = tex2D<float>(image, 0, 0); }
