/* floor FOLDER COUNT SIZE: files written and renamed a second. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

int main(int argc, char **argv) {
  char draft[600], name[600], body[4096];
  int count = atoi(argv[2]), size = atoi(argv[3]);
  struct timespec began, ended;
  memset(body, 'x', sizeof body);
  snprintf(draft, sizeof draft, "%s/tmp", argv[1]);
  mkdir(draft, 0700);
  snprintf(name, sizeof name, "%s/ready", argv[1]);
  mkdir(name, 0700);
  clock_gettime(CLOCK_MONOTONIC, &began);
  for (int i = 0; i < count; i++) {
    snprintf(draft, sizeof draft, "%s/tmp/%09d.json", argv[1], i);
    snprintf(name, sizeof name, "%s/ready/%09d.json", argv[1], i);
    int fd = open(draft, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    if (write(fd, body, size) != size || close(fd) || rename(draft, name)) return 1;
  }
  clock_gettime(CLOCK_MONOTONIC, &ended);
  printf("%.1f\n", count / (ended.tv_sec - began.tv_sec + (ended.tv_nsec - began.tv_nsec) / 1e9));
  return 0;
}
