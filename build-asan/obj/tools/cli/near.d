build-asan/obj/tools/cli/near.o: tools/cli/near.c tools/cli/near.h
tools/cli/near.h:
